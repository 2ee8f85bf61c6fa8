"""``seatrial job tune``: which NIC profile and transport suit a user's own program, by running it.

Each run is a job of an ordinary Slurm user, because Slurm's Prolog and Epilog switch the profile of
a job. ``request`` makes the candidates from a site, ``study`` decides which of them runs next and
when to stop, ``job`` submits one run and waits for it, ``outcome`` reads what it left, ``record``
keeps all of it, ``answer`` says it in words, and ``session`` is the loop over these.

Not here: trials (``seatrial.trial``). Nothing is judged against a requirement.
"""
