"""Seatrial: acceptance tests for the network of an HPC cluster.

This package is the toolkit behind the ``seatrial`` command: it reads a site's
description, drives ReFrame and Slurm, and judges what they measured. The
ReFrame checks are in ``reframe-checks/``, the sites with their requirements
in ``site-configs/``.
"""

__version__ = "0.1.0"
