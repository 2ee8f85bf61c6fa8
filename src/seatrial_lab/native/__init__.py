"""The native lab: a real Slurm on nodes that are namespaces of this machine.

Its figures show this machine's kernel and processors. They do not show a NIC or its driver.
"""
