"""The labs: clusters that Seatrial makes itself, for trials without hardware.

A node of the ``native`` lab is a set of namespaces. A node of the ``virtual`` lab is a set of
namespaces in an emulated machine. ``common`` holds the code of both labs. ``software`` installs
their software from Debian and PyPI. This file imports nothing: the first process of each node
imports this package and must start fast.
"""
