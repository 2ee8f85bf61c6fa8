"""Start the command line. Codes 0, 1 and 2 are verdicts: no error of an import ends with one."""

import gc
import sys
import traceback

from seatrial.base.errors import EXIT_DEFECT, SeatrialError, defect
from seatrial.base.memory import no_collections

try:
    with no_collections():  # which took a fifth of the start
        from seatrial.cli import main

        gc.freeze()  # modules stay: no later collection has to walk through them
except SeatrialError as error:  # an incomplete benchmark
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
except (Exception, SystemExit) as error:
    traceback.print_exc()
    print(defect(error), file=sys.stderr)
    sys.exit(EXIT_DEFECT)

main()
