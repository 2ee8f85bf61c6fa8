"""Job scripts for users: templates of ``slurm-templates/jobs``, rendered for one site.

``request`` holds what a user asks for, ``choose`` picks the transport and the NIC profile by the
site's trials, else by the kind of application, ``plan`` adds all else that a site decides,
``render`` makes the script and ``submit`` passes it to sbatch. A rendered script needs no Seatrial
where it runs.
"""
