"""A picture of small squares in a palette of colours, as a PNG of one byte per square.

For maps of so many links that a table cell for each would be too large. Any imaging library would
do the same; the format (PNG, RFC 2083) needs three chunks for it.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence


def data_uri(rows: Sequence[bytes], palette: Sequence[str]) -> str:
    """A ``data:`` URI. ``rows`` hold indices into ``palette``, whose colours are ``#rrggbb``.

    Raises ValueError if the rows differ in length or there is none.
    """
    if not rows or len({len(row) for row in rows}) != 1 or not rows[0]:
        raise ValueError("a picture needs rows of one length")
    # Width, height, 8 bits per square, palette (colour type 3), deflate, no interlacing.
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    colours = b"".join(bytes.fromhex(colour[1:]) for colour in palette)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    chunks = ((b"IHDR", header), (b"PLTE", colours), (b"IDAT", pixels), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
