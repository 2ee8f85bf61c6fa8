"""The frames between client, broker and the guest's agent.

The broker and the agent use a serial line; a client and the broker use a socket. A frame is a
command's number, a kind, a size in bytes and the data. This module imports only the standard
library, because the guest's first process uses it.
"""

from __future__ import annotations

import json
import struct

HEAD = struct.Struct(">IcI")
#: to the guest: run a command (JSON: argv, env, cwd, user, node), input for it (empty: end of
#: input), a signal (its number as text)
RUN, INPUT, SIGNAL = b"R", b"I", b"S"
#: from the guest: output, error output, exit code (text), booted (seconds of its own clock),
#: boot failed (text), and idle since the end of the command with the frame's number
OUTPUT, ERROR, EXIT, READY, FAILED, QUIET = b"O", b"E", b"X", b"Y", b"F", b"Q"
#: from the broker to a client: refused, because a step is being measured
BUSY = b"B"
CHUNK = 32768
#: largest data of a frame; a request has the arguments and the environment of a command
LIMIT = 1 << 20
#: name of the serial line in the guest
PORT = "seatrial"


def frame(number: int, kind: bytes, data: bytes = b"") -> bytes:
    return HEAD.pack(number, kind, len(data)) + data


def request_data(request: object) -> bytes:
    """Return a request as the data of a frame: JSON that is as short as it can be.

    A word of a command has half a pair of surrogates for a byte that is not UTF-8.
    """
    text = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="surrogatepass")


class BadFrame(Exception):
    """A frame is larger than LIMIT. Nothing after its head can be read."""


class Reader:
    """Splits a stream into frames."""

    def __init__(self) -> None:
        self.buffer = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes, bytes]]:
        """Add data. Returns the frames (number, kind, data) that are now complete.

        Raises BadFrame.
        """
        self.buffer += data
        frames = []
        while len(self.buffer) >= HEAD.size:
            number, kind, size = HEAD.unpack_from(self.buffer)
            if size > LIMIT:
                raise BadFrame(f"a frame of {size} bytes is larger than {LIMIT}")
            if len(self.buffer) < HEAD.size + size:
                break
            frames.append((number, kind, self.buffer[HEAD.size : HEAD.size + size]))
            self.buffer = self.buffer[HEAD.size + size :]
        return frames
