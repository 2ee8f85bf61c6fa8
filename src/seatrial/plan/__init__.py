"""The plan of a trial: a site and its stack, resolved once before the trial runs.

``seatrial.plan.resolve`` makes it, ``seatrial.plan.model`` is its model. ReFrame's configuration,
the checks and the trial read the plan and not the site.
"""
