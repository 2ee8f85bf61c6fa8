"""Runs one of the OSU programs that come with mpi4py: ``run.py latency -m 65536``.

Those programs take no options: their settings are arguments of a function, which this passes.
Installed beside them; needs mpi4py and nothing else.
"""

import argparse
import importlib
import inspect

#: option -> the names that the programs give it: for small messages, for large ones
ITERATIONS = (("loop", "loop_small"), ("loop_large",))
WARM_UP = (("skip", "skip_small"), ("skip_large",))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("test", help="latency, bw, bibw, multi_lat, allgather ...")
    parser.add_argument("-m", "--max-bytes", type=int, help="largest message")
    parser.add_argument("-i", "--iterations", type=int, help="per size; a tenth of it above 8 KiB")
    parser.add_argument(
        "-x", "--warm-up", type=int, help="iterations not timed; a tenth of it above 8 KiB"
    )
    options = parser.parse_args()
    function = getattr(importlib.import_module(f"osu_{options.test}"), f"osu_{options.test}")
    given = {"MAX_MSG_SIZE": options.max_bytes}
    for count, (small, large) in (
        (options.iterations, ITERATIONS),
        (options.warm_up, WARM_UP),
    ):
        if count is not None:
            given.update(dict.fromkeys(small, count))
            given.update(dict.fromkeys(large, max(2, count // 10)))
    takes = inspect.signature(function).parameters
    function(**{k: v for k, v in given.items() if k in takes and v is not None})


if __name__ == "__main__":
    main()
