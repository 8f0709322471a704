"""Speed-ups that say more about the baseline, or the measurement, than about the case: a factor and its caution.

fallback   by ONNX Runtime's profile the baseline spends FALLBACK_SHARE of its nodes' time on what its main provider
           left to another, with the copies there and back: what is faster is the absence of that
roof       the case is faster than its graph at the GPU's roofs, as one kernel: the measurement needs a look
beyond     more times as fast as the same case on one GPU as it has GPUs: the time on one GPU is in doubt
unlikely   on one GPU and by the same boundary LARGE times and more: no runtime is so much better, so that the
           baseline is to be looked at first; not where its own profile shows that nothing falls back
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import pandas as pd

from inferprof import registry
from inferprof.case import PARALLEL
from inferprof.tables.nodes.fallback import ON_PURPOSE, ledger
from inferprof.tables.nodes.providers import per_run
from inferprof.tables.records import KEY, Options, frame_of, key_of, paired_without, rows_of

FALLBACK_SHARE: Final = 0.1
"""Ours, of the nodes' time: below it the speed-up is mostly the case's own."""
LARGE: Final = 20.0
"""Ours. The largest that an H100 showed between an eager launch-bound model and its CUDA graph is 10."""
PROFILE: Final = "ort_profile under `profilers:`"
TOLERANCE: Final = 0.95
"""Of the roof: measured ceilings are not exact either."""
Place = tuple[Any, ...]
_NAMES: Final = slice(KEY.index("precision"), KEY.index("variant") + 1)


def flagged(
    speed_ups: pd.DataFrame,
    profiles: pd.DataFrame,
    roofline: pd.DataFrame,
    baseline: str | None,
    options: Options = MappingProxyType({}),
) -> pd.DataFrame:
    """summary.speed_ups with `flag`: what is to be said beside the factor, or None.

    profiles: tidy tables; roofline: roofline.by_case; baseline: precision/backend/variant.
    """
    alone = paired_without(PARALLEL, options)
    roofs = {key_of(row): row for row in rows_of(roofline) if row["fused_ms"] is not None}
    names = (baseline or "//").split("/")
    sessions = _sessions(profiles, names)
    rows = []
    for row in rows_of(speed_ups):
        session = sessions.get((row["machine"], row["model"], row["shape"]))
        divided = any("/".join(key[_NAMES]) == baseline for key in alone.get(key_of(row), ()))
        flag = _beyond(row, options[key_of(row)][PARALLEL]) if divided else None
        rows.append({**row, "flag": flag or _flag(row, roofs.get(key_of(row)), session)})
    return frame_of(rows, [*speed_ups.columns, "flag"])


def _sessions(profiles: pd.DataFrame, names: list[str]) -> dict[Place, str]:
    """(machine, model, shape) → how the baseline falls back, empty where its profile shows that it does not."""
    own = profiles[(profiles[["precision", "backend", "variant"]] == names).all(axis=1)]
    by_place: dict[Place, str] = {}
    for tool in registry.sessions():
        for key, rows in own[own["tool"] == tool].groupby(["machine", "model", "shape"], sort=False):
            by_place.setdefault(key, fallback_of(rows))
    return by_place


def fallback_of(session: pd.DataFrame) -> str:
    """What is left to other execution providers, where it takes FALLBACK_SHARE of its nodes' time; else empty."""
    nodes = per_run(session)
    fallbacks = ledger(nodes)
    fallbacks = fallbacks[fallbacks["why"] != ON_PURPOSE]
    time = float(fallbacks[["nodes_ns", "copies_ns", "casts_ns"]].to_numpy().sum())
    share = time / float(nodes["duration"].sum() or 1.0)
    if share < FALLBACK_SHARE:
        return ""
    types = ", ".join(dict.fromkeys(op_type for types in fallbacks["op_types"] for op_type in types.split(", ")))
    return f"{fallbacks['executions'].sum():.0f} of its nodes fall back ({types}) and take {share:.0%} of its run"


def _beyond(row: Mapping[str, Any], parallel: Mapping[str, int]) -> str | None:
    """parallel: how the case is divided; the baseline is the same one on one GPU."""
    (gpus,) = parallel.values()
    if row["speed_up"] is None or row["speed_up"] <= gpus:
        return None
    return f"more than its {gpus} GPUs give over the same case on one, whose time is in doubt (Several GPUs)"


def _flag(row: Mapping[str, Any], roof: Mapping[str, Any] | None, session: str | None) -> str | None:
    """session: how the baseline falls back; empty where it does not, None where nothing watched it."""
    if row["speed_up"] is None or row["speed_up"] <= 1:
        return None
    if session:
        return f"the baseline falls back: {session}"
    if roof is not None and roof["device_ms"] < TOLERANCE * roof["fused_ms"]:
        return f"faster than its graph at the roof ({roof['fused_ms']:.3g} ms): the measurement needs a look"
    if session is None and row["boundary"] == "device" and row["speed_up"] >= LARGE:
        return f"runtimes on one GPU hardly differ by {LARGE:.0f}×; whether the baseline falls back needs {PROFILE}"
    return None
