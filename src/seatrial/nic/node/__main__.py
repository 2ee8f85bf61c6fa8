"""``python3 -m seatrial.nic.node``, for a checkout; an installation has its launcher instead."""

import sys

from .cli import main

sys.exit(main(sys.argv[1:]))
