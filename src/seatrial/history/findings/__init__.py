"""From the changes of level of all series of a site to findings, one for each cause.

``table`` has the figures of the site by night, with what each case was measured under
(``conditions``) and which nodes took the place of others (``swaps``). ``levels_of_series`` and
``lost`` say when each series changed. ``grouping`` joins the changes of a night that have a cause
in common (``cause``, by ``explanation`` and ``difference``) to a finding. ``apart``, ``rollouts``
and ``drifts`` look at findings beside each other: a place with an effect of its own, a version that
came to one node after the other, a drift that each series shows on another night. ``describe`` says
what a finding is of.

All of them read the table, and none changes it. A night is a position in the list of all trials.
"""
