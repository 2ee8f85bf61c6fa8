"""The native lab: a real Slurm on nodes that are namespaces of this machine.

Entry points: :class:`seatrial.lab.engine.Lab` and
:class:`seatrial.lab.spec.LabSpec`. Nothing is imported here, because the node's
first process (``seatrial.lab.nodeinit``) starts through this package and must
be light.

This is not the virtual-time lab: figures measured here are those of this
machine's kernel and processor, not of a NIC driver.
"""
