"""The plan of a trial: a site and its stack resolved once, before anything runs.

``seatrial.plan.resolve`` makes it, ``seatrial.plan.model`` is its shape. ReFrame's configuration,
the checks and the trial read the plan, and none of them reads the site.
"""
