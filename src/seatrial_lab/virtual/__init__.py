"""The virtual-time lab: a Slurm cluster in one emulated machine whose clock counts instructions.

Its nodes are namespaces of the emulated machine. Their NICs are emulated cards with the kernel's
own drivers. The entry point is :class:`seatrial_lab.virtual.engine.VirtualLab`. This file imports
nothing: programs of the guest and of trials import this package and must start fast.

Caches and memory cost no time in it. Wires and host buses cost time only where the site declares
them (``wires``, ``bus_MB_s``). The cost of a driver and its interrupts is in instructions, which is
the same on every machine.
"""
