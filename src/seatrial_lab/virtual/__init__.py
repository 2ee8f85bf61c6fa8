"""The virtual-time lab: a Slurm cluster in one emulated machine whose clock counts instructions.

Its nodes are namespaces of that machine, as the native lab's are of this one, and their NICs are
emulated cards with the kernel's own drivers. Entry point:
:class:`seatrial_lab.virtual.engine.VirtualLab`. Nothing is imported here, because programs of the
guest and of trials start through this package and must be light.

This is not a model of a network's speed: wire, caches and memory cost nothing here. What a driver
and its interrupts cost in instructions, it shows the same on every machine.
"""
