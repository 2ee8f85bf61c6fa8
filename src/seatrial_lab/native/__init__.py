"""The native lab: a real Slurm on nodes that are namespaces of this machine.

Figures measured here are those of this machine's kernel and processor, not of a NIC driver.
"""
