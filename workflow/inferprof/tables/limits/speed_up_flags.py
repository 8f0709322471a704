"""Speed-ups that say more about the baseline, or the measurement, than about the case: a factor and its caution.

fallback   by ONNX Runtime's profile the baseline spends FALLBACK_SHARE of its nodes' time on what its main provider
           left to another, with the copies there and back: what is faster is the absence of that
roof       the case is faster than its graph at the GPU's roofs, as one kernel: the measurement needs a look
unlikely   on one GPU and by the same boundary LARGE times and more: no runtime is so much better, so that the
           baseline is to be looked at first; not where its own profile shows that nothing falls back
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from inferprof import registry
from inferprof.tables.nodes.fallback import ON_PURPOSE, ledger
from inferprof.tables.nodes.providers import per_run
from inferprof.tables.records import frame_of, key_of, rows_of

if TYPE_CHECKING:
    import pandas as pd

FALLBACK_SHARE: Final = 0.1
"""Ours, of the nodes' time: below it the speed-up is mostly the case's own."""
LARGE: Final = 20.0
"""Ours. The largest that an H100 showed between an eager launch-bound model and its CUDA graph is 10."""
PROFILE: Final = "ort_profile under `profilers:`"
TOLERANCE: Final = 0.95
"""Of the roof: measured ceilings are not exact either."""
Place = tuple[Any, ...]


def flagged(
    speed_ups: pd.DataFrame, profiles: pd.DataFrame, roofline: pd.DataFrame, baseline: str | None
) -> pd.DataFrame:
    """summary.speed_ups with `flag`: what is to be said beside the factor, or None.

    profiles: tidy tables; roofline: roofline.by_case; baseline: precision/backend/variant.
    """
    roofs = {key_of(row): row for row in rows_of(roofline) if row["fused_ms"] is not None}
    names = (baseline or "//").split("/")
    sessions = _sessions(profiles, names)
    rows = []
    for row in rows_of(speed_ups):
        session = sessions.get((row["machine"], row["model"], row["shape"]))
        rows.append({**row, "flag": _flag(row, roofs.get(key_of(row)), session)})
    return frame_of(rows, [*speed_ups.columns, "flag"])


def _sessions(profiles: pd.DataFrame, names: list[str]) -> dict[Place, str]:
    """(machine, model, shape) → how the baseline falls back, empty where its profile shows that it does not."""
    own = profiles[(profiles[["precision", "backend", "variant"]] == names).all(axis=1)]
    found: dict[Place, str] = {}
    for tool in registry.sessions():
        for key, rows in own[own["tool"] == tool].groupby(["machine", "model", "shape"], sort=False):
            found.setdefault(key, fallback_of(rows))
    return found


def fallback_of(session: pd.DataFrame) -> str:
    """What a session leaves to lesser providers, where that takes FALLBACK_SHARE of its nodes' time; else empty."""
    nodes = per_run(session)
    stays = ledger(nodes)
    stays = stays[stays["why"] != ON_PURPOSE]
    time = float(stays[["nodes_ns", "copies_ns", "casts_ns"]].to_numpy().sum())
    share = time / float(nodes["duration"].sum() or 1.0)
    if share < FALLBACK_SHARE:
        return ""
    types = ", ".join(dict.fromkeys(one for types in stays["op_types"] for one in types.split(", ")))
    return f"{stays['executions'].sum():.0f} of its nodes fall back ({types}) and take {share:.0%} of its run"


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
