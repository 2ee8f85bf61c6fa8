"""The labs' software: what Debian and PyPI install, and the benchmarks built with it.

``provision`` brings a machine to that state. The software of a real site is Spack's
(``seatrial.stack``).
"""
