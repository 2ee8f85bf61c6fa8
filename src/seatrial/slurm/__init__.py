"""The Slurm side of NIC profiles: the files of ``slurm-templates/`` made for one site.

``render`` makes their text, ``install`` puts them on a node or into an image, ``check`` compares
a running Slurm with what they need, and ``lab`` gives the same files to a lab. What they do on a
node is in ``seatrial.nic.node``; what a profile is, in ``seatrial.nic``.
"""
