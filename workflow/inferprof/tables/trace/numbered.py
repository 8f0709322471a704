"""Ranges that a program numbers (`step 0`, `step 1`, …) as one name (`step #`): each is there but once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd

from inferprof.grouping import grouped
from inferprof.tables.trace.timeline import PATH_SEPARATOR, Timeline

NUMBER: Final = "#"
"""In the place of the number that counts."""
FEWEST: Final = 3
"""Ours: two ranges may differ by a number that is no counter's."""
MOST_OF_ONE: Final = 2
"""Ours: of a thread. What is there more often has a size in its name, as `batch 8` has."""
FULL: Final = 1.25
"""Ours: a counter has so many times as many values as were seen; sizes (1, 2, 4, 8) leave more out."""
_DIGITS: Final = re.compile(r"\d+")
_COUNTED: Final = re.compile(
    r"(?:^|[^a-z])(?:iteration|iter|step|batch|request|req|query|frame|sample|inference|infer)"
    r"[^a-z0-9]*(?:(?:id|idx|index|no|nr|number)[^a-z0-9]*)?\d",
    re.IGNORECASE,
)
"""What a program counts as it infers. Layers, stages and devices have numbers too, as parts of an inference; epochs,
runs and rounds hold several."""


def as_one(timeline: Timeline) -> Timeline:
    """The timeline with one name for ranges that differ by a counter alone; as it is where there are none."""
    paths = [path.split(PATH_SEPARATOR) for path in timeline.paths]
    last = np.array([path[-1] for path in paths], object)[timeline.ranges["path"].to_numpy()]
    named = pd.DataFrame({"name": last, "thread": timeline.ranges["thread"].to_numpy()})
    most = named.groupby(["name", "thread"]).size().groupby("name").max()
    rare = map(str, most[most <= MOST_OF_ONE].index)
    names = _new_names([name for name in rare if _COUNTED.search(name)])
    if not names:
        return timeline
    joined = [PATH_SEPARATOR.join(names.get(part, part) for part in path) for path in paths]
    return with_paths(timeline, joined)


def with_paths(timeline: Timeline, paths: Sequence[str]) -> Timeline:
    """The timeline with these names of its paths, of which several may be one now."""
    numbers, distinct = pd.factorize(np.array(paths, object))
    codes = numbers.astype(np.int32)
    made = {"made": codes[timeline.ops["made"].to_numpy()]} if "made" in timeline.ops else {}
    calls, ranges = (
        frame.assign(path=codes[frame["path"].to_numpy()]) for frame in (timeline.calls, timeline.ranges)
    )
    return replace(timeline, ops=timeline.ops.assign(**made), calls=calls, ranges=ranges, paths=distinct.tolist())


def _new_names(names: Sequence[str]) -> dict[str, str]:
    """Name → the one that it shares with those that differ from it by a counter."""
    families = grouped((_DIGITS.sub(NUMBER, name), name) for name in names)
    renamed = {}
    for family in families.values():
        numbers = np.array([[int(digits) for digits in _DIGITS.findall(name)] for name in family], object)
        varying = [place for place in range(numbers.shape[1]) if len(set(numbers[:, place])) > 1]
        if len(family) >= FEWEST and len(varying) == 1 and _is_counter(sorted(numbers[:, varying[0]])):
            renamed.update({name: _without(name, varying[0]) for name in family})
    return renamed


def _is_counter(values: Sequence[int]) -> bool:
    steps = [after - before for before, after in pairwise(values)]
    return bool(sum(steps) // int(np.gcd.reduce(steps)) + 1 <= FULL * len(values))


def _without(name: str, place: int) -> str:
    """The name without its number of this place."""
    digits = list(_DIGITS.finditer(name))[place]
    return f"{name[: digits.start()]}{NUMBER}{name[digits.end() :]}"
