"""Server-sent events, framed after the stream has ended: each with the time at which its last byte was read."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

Read = tuple[float, bytes]
"""When bytes were read, and the bytes."""

# A line may end in CR, LF or both (WHATWG HTML, section 9.2.6); atomic, or CR LF would pass for two ends of lines.
_LINE_END = re.compile(rb"(?>\r\n|\n|\r)")
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_BOM = b"\xef\xbb\xbf"


def events_of(reads: Sequence[Read], *, is_whole: bool) -> Iterator[Read]:
    """The data of each event, with the time of the read that completed it. Events without data are left out.

    Args:
        reads: what was read, in order; where it was cut does not matter.
        is_whole: the stream ended by itself: what follows the last blank line is an event too, for servers that forget
            the blank line; otherwise it is one cut short.
    """
    body = b"".join(data for _, data in reads)
    ends = list(accumulate(len(data) for _, data in reads))
    start = len(_BOM) if body.startswith(_BOM) else 0
    for blank in _BLANK_LINE.finditer(body):
        data = _data_of(body[start : blank.start()])
        start = blank.end()
        if data is not None:
            yield reads[bisect_left(ends, start)][0], data
    data = _data_of(body[start:])
    if is_whole and data is not None:
        yield reads[-1][0], data


def _data_of(block: bytes) -> bytes | None:
    """The joined ``data`` lines of an event; ``None`` if they are empty, which keeps connections awake."""
    if len(block) > 6 and block.startswith(b"data: ") and b"\n" not in block and b"\r" not in block:
        return block[6:]
    lines = []
    for line in _LINE_END.split(block):
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" "))
    return b"\n".join(lines) or None
