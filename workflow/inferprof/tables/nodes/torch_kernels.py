"""Kernels by operator and by module of torch, as rows of the tidy table, and back: a Kineto trace joined in itself.

A kernel's correlation id names the call that launched it, and on the call's thread operators and modules lie around
it as ranges: the innermost of each owns the launch. Launches of a CUDA graph lie in none of them and are nobody's.

Levels kernel, memcpy and memset inside of these ranges; level range, each of them on the host.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from inferprof.tables.nodes import attribution
from inferprof.tables.schema import joined
from inferprof.tables.trace import aggregate, one_iteration
from inferprof.tables.trace.timeline import MODULE, OPERATOR, PATH_SEPARATOR, Timeline

_LEVELS: Final[dict[attribution.OwnerLevel, str]] = {"op": OPERATOR, "module": MODULE}
"""Level → how the labels of its ranges begin."""


def tidy(timeline: Timeline, tool: str) -> pd.DataFrame:
    """The rows that the module describes, of a timeline that was read with `within_torch`."""
    frames = [aggregate.operations(timeline), aggregate.ranges(timeline), one_iteration.rows(timeline)]
    return joined(frames, tool)


def attributed(frame: pd.DataFrame) -> pd.DataFrame:
    """The join as attribution.COLUMNS, of one case at the levels op and module: frame as `tidy` gives it.

    An owner is the path of operators (`aten::linear > aten::addmm`), or of modules, from the outermost to its own.
    """
    rows = frame[(frame["level"] == "kernel") & (frame["metric"] == "duration_total")]
    common = rows[["name", "value", "instances"]].set_axis(["kernel", "duration_ns", "instances"], axis=1)
    parts = []
    for level, prefix in _LEVELS.items():
        paths = {path: _of_level(path, prefix) for path in rows["range"].dropna().unique()}
        owner = rows["range"].map(paths).astype("str")
        confidence = np.where(owner.notna(), 1.0, np.nan)
        parts.append(common.assign(owner=owner, owner_level=level, confidence=confidence))
    return attribution.conform(pd.concat(parts, ignore_index=True))


def _of_level(path: str, prefix: str) -> str | None:
    labels = [label.removeprefix(prefix) for label in path.split(PATH_SEPARATOR) if label.startswith(prefix)]
    return PATH_SEPARATOR.join(labels) or None
