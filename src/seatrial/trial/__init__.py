"""One trial: runs a plan through ReFrame and Slurm, and collects the results."""
