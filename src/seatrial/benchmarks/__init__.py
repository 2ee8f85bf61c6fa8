"""The benchmarks: one module each, found by ``seatrial.benchmarks.registry``.

A benchmark's module holds all that is particular to it: the settings that a site gives, the
variants and the programs that each needs, the steps of a job, the parser of the output with the
volume that it must have moved. Nothing here knows a site, Slurm or ReFrame.
"""
