"""Job scripts for users: templates of ``slurm-templates/jobs``, rendered for one site.

``request`` says what is asked for, ``choose`` picks transport and NIC profile by what the
application is, ``plan`` adds all else that follows for a site, ``render`` makes the script
(``script`` puts the values in), ``submit`` hands it to Slurm. What is
rendered needs no Seatrial to run.
"""
