"""Run times on more nodes than were measured: SimGrid's SMPI over a network calibrated by a trial.

The program itself runs, all its ranks on this machine; only its messages are simulated, and its
computing is scaled to the speed of the nodes. Nothing here prints.
"""
