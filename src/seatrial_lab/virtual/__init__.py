"""The virtual-time lab: a Slurm cluster in one emulated machine whose clock counts instructions.

Its nodes are namespaces of the emulated machine. Their NICs are emulated cards with the kernel's
own drivers. The entry point is :class:`seatrial_lab.virtual.engine.VirtualLab`. This file imports
nothing: programs of the guest and of trials import this package and must start fast.

The lab is not a model of a network's speed: wire, caches and memory cost no time in it. It shows
the cost of a driver and its interrupts in instructions, which is the same on every machine.
"""
