"""The labs: clusters that Seatrial makes itself, for trials without hardware.

``native`` makes nodes of namespaces, ``virtual`` of an emulated machine; ``common`` is what both
share, ``software`` what Debian and PyPI install for them. Nothing is imported here, because the
first process of a node starts through this package and must be light.
"""
