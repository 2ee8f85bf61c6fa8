"""Node side: put one rank of several pairs on a core and a rail, and start its program.

    python3 -IS pin.py PAIRS RAILS INDEX -- PROGRAM...

Ranks i and i + PAIRS are pair i. RAILS is JSON: a list of objects of environment variables, which
the pairs use in turn. INDEX is the variable that numbers the ranks for the cores: SLURM_LOCALID,
or SLURM_PROCID where the nodes share their cores. The rank gets the core of that number among
those that Slurm allows it, or several ranks share a core if there are fewer.

Only the Python standard library is used.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from names import node_name  # (with -I, Python does not add this folder to the path)


def main(argv):
    split = argv.index("--")
    pairs, rails, index = int(argv[0]), json.loads(argv[1]), argv[2]
    command = argv[split + 1 :]
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[int(os.environ[index]) % len(allowed)]})
    pair = int(os.environ["SLURM_PROCID"]) % pairs
    for name, value in rails[pair % len(rails)].items():
        os.environ[name] = value.replace("{node}", node_name())
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit("pin.py: %s: %s" % (command[0], error.strerror))


if __name__ == "__main__":
    main(sys.argv[1:])
