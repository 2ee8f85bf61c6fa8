"""The benchmarks: one module each, listed by ``seatrial.benchmarks.registry``.

The module of a benchmark holds its settings, its variants and their programs, the steps of a job,
and the parser of the output with the volume that the benchmark moved. Nothing here knows a site,
Slurm or ReFrame.
"""
