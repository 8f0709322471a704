"""What `inferprof capture` writes where a tool refused."""

from __future__ import annotations

from typing import Final

from inferprof.readers.kind import Kind

BEGIN: Final = b'{\n "not_measured": '

NOT_MEASURED: Final = Kind(
    name="not_measured",
    title="the reason why nothing was captured",
    recognises=lambda head: head.raw.startswith(BEGIN),
    tool="ncu",
    rank=10,
)
