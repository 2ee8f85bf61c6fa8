"""Parsers of benchmark output, one module per program, each with ``parse(text, ...) -> Parsed``.

netpipe, imb, osu, hpl, hpcc, npb, mpbench, iperf3; and ``counters``, which reads the nodes'
byte counters and proves the path. All raise ParseError rather than return a part.
"""

from seatrial.results.parsers.base import Parsed, ParseError

__all__ = ["ParseError", "Parsed"]
