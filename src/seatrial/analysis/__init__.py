"""What the figures of trials mean: typed conclusions from their records.

Each conclusion has its inputs (trials, cases, number of samples), an interval, and what would
change it. Where an input is missing there is a reason instead of a figure. Nothing here prints, and
nothing here judges: verdicts are of ``seatrial.results``, sentences of ``seatrial.report.meaning``.
The papers that modules name are listed in site-configs/lab-virtual/published.yaml.
"""
