"""The Slurm side of NIC profiles: the files of ``slurm-templates/``, rendered for one site.

``render`` makes their text, ``install`` writes them to a node or an image, and ``check`` compares a
running Slurm with what they need. The code that runs on a node is in ``seatrial.nic.node``, the
profiles are in ``seatrial.nic``.
"""
