"""Runs commands one after the other and says how long each took. Runs on a node, as root.

Standard input: JSON, a list of {"argv", "env"}. Standard output: JSON, for each in turn
{"wall_s", "cpu_s" (its own and its children's), "code", "out", "err"}. Nothing is started between
the two readings of the clock but the command itself.
"""

import json
import os
import sys
import tempfile
import time


def run(one):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        pid = os.posix_spawn(
            one["argv"][0], one["argv"], one["env"],
            file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1),
                          (os.POSIX_SPAWN_DUP2, err.fileno(), 2)],
        )  # fmt: skip
        _, status, usage = os.wait4(pid, 0)
        wall = time.perf_counter() - begin
        said = []
        for stream in (out, err):
            stream.seek(0)
            said.append(stream.read().decode(errors="replace"))
    return {
        "wall_s": wall, "cpu_s": usage.ru_utime + usage.ru_stime,
        "code": os.WEXITSTATUS(status), "out": said[0], "err": said[1],
    }  # fmt: skip


json.dump([run(one) for one in json.load(sys.stdin)], sys.stdout)
