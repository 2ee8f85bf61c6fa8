"""Seatrial: acceptance tests for the network of an HPC cluster.

This package is the toolkit behind the ``seatrial`` command: it reads a site's
description, drives ReFrame and Slurm, and judges what they measured. It holds
no benchmark and no threshold; those are in ``reframe-checks/`` and
``site-configs/``.
"""

__version__ = "0.1.0"
