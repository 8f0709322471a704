"""Cuts a capture short at many places: each must be refused, or read as the whole."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pandas as pd

from inferprof.errors import UserError

Reader = Callable[[Path], pd.DataFrame]
PLACES = 60
"""Of each kind, where a test says nothing else: files of many lines are cut at a sample of them."""


def places(content: bytes, most: int = PLACES, seed: int = 0) -> list[int]:
    """How many bytes are kept, in order: none, at random places, and around ends of lines (before, behind, one on).

    The last line's are always among them.
    """
    choose = random.Random(seed)
    ends = [place for place, byte in enumerate(content) if byte == ord("\n")]
    lines = {*choose.sample(ends, min(most, len(ends))), *ends[-2:], len(content) - 1}
    anywhere = (choose.randrange(len(content)) for _ in range(most))
    around = (place + step for place in lines for step in (0, 1, 2))
    return sorted({0, *anywhere, *(place for place in around if place < len(content))})


def accepted(
    content: bytes, name: str, read: Reader, folder: Path, kept: Iterable[int] | None = None
) -> Iterator[int]:
    """How much was kept where the reader took a part for a capture, which it did not read as the whole.

    `name`: what the file is called, with its suffix. What is no UserError is raised, with the place.
    """
    path = folder / name
    path.write_bytes(content)
    whole = read(path)
    for place in places(content) if kept is None else kept:
        path.write_bytes(content[:place])
        try:
            part = read(path)
        except UserError as error:
            assert "\n" not in str(error), f"cut behind byte {place}: not one line: {error}"
        except Exception as error:
            error.add_note(f"cut behind byte {place} of {len(content)}")
            raise
        else:
            if not part.equals(whole):
                yield place
