"""The labs' software: packages of Debian and PyPI, and the benchmarks built with them.

``provision`` installs and builds it. It is not for real sites, where Spack builds the software
(``seatrial.stack``).
"""
