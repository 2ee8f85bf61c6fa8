"""What the host and the guest's agent say to each other over a serial line, and a command's client
to the broker over a socket: frames of a command's number, a kind and bytes.

Only the standard library: the guest's first process uses this.
"""

from __future__ import annotations

import struct

HEAD = struct.Struct(">IcI")
#: to the guest: run a command (JSON: argv, env, cwd, user, node), its input (empty: the end of
#: it), a signal (its number as text)
RUN, INPUT, SIGNAL = b"R", b"I", b"S"
#: from the guest: output, error output, exit code (text), booted (seconds of its own clock)
#: or a boot that failed (text), and that nothing has been running for a while since the command
#: of that number
OUTPUT, ERROR, EXIT, READY, FAILED, QUIET = b"O", b"E", b"X", b"Y", b"F", b"Q"
#: from the broker to a client: not now, for something is being measured
BUSY = b"B"
CHUNK = 32768
#: name of the serial line in the guest
PORT = "seatrial"


def frame(number: int, kind: bytes, data: bytes = b"") -> bytes:
    return HEAD.pack(number, kind, len(data)) + data


class Reader:
    """Cuts a stream into frames."""

    def __init__(self) -> None:
        self.buffer = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes, bytes]]:
        """The frames (number, kind, data) that are complete now."""
        self.buffer += data
        frames = []
        while len(self.buffer) >= HEAD.size:
            number, kind, size = HEAD.unpack_from(self.buffer)
            if len(self.buffer) < HEAD.size + size:
                break
            frames.append((number, kind, self.buffer[HEAD.size : HEAD.size + size]))
            self.buffer = self.buffer[HEAD.size + size :]
        return frames
