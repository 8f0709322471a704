"""Samples to statements: the latency of each case at each boundary, and its speed-up over the baseline."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from inferprof import stats
from inferprof.plugins import Boundary
from inferprof.tables import gate
from inferprof.tables.records import KEY, but_for, frame_of, key_of, rows_of

PEERS = ["machine", "model", "shape"]
"""What a case and its baseline have in common."""
LATENCY_COLUMNS = [
    *(field.name for field in dataclasses.fields(stats.Summary)),
    "low",
    "high",
    "rounds",
    "stopped_by",
    "settled",
    "drift",
    "doubt",
    "not_measured",
]
SPEED_UP_COLUMNS = [
    "boundary",
    "speed_up",
    "low",
    "high",
    "detectable",
    "rounds",
    "verdict",
    "reason",
    "in_doubt",
    "not_measured",
]
REBUILD = "rebuild"
"""The option of variants that build the same engine once more."""
REBUILD_COLUMNS = [
    *PEERS,
    "precision",
    "backend",
    "builds",
    "fastest",
    "fastest_ns",
    "slowest",
    "slowest_ns",
    "spread",
    "noise",
]
HOST_COLUMNS = ["readings", "yardstick_ns", "spread", "waited", "steal_percent", "not_measured", "no_steal"]
Rounds = Mapping[int, "np.ndarray[Any, Any]"]
"""Round → samples in ns."""
Doubts = Mapping[tuple[Any, ...], str]
"""KEY and boundary → why a latency is not to be trusted: gate.doubt."""
NO_VERDICT = "undecided"
NOTHING: Mapping[tuple[Any, ...], Any] = {}


def latency(
    boundaries: pd.DataFrame, waited: Mapping[tuple[Any, ...], float] = NOTHING, limit: float = gate.WAITED
) -> pd.DataFrame:
    """One row per case and boundary: stats.Summary of the samples of all rounds, in ns.

    `low` and `high` are the 95 % interval of the median; `stopped_by` and `settled` name each distinct answer of
    the rounds; `drift` is the largest relative change within a round where one was found. `not_measured` has the
    reason where no round has samples; `doubt` is gate.doubt, with `waited` of a case (KEY) and its limit.
    """
    rows = []
    for key, group in boundaries.groupby([*KEY, "boundary"], sort=False):
        row = _latency(group)
        if row["not_measured"] is None:
            settling = row.pop("settling")
            row["doubt"] = gate.doubt(settling, waited.get(tuple(key[:-1])), limit)
        rows.append({**dict(zip([*KEY, "boundary"], key, strict=True)), **row})
    return frame_of(rows, [*KEY, "boundary", *LATENCY_COLUMNS])


def speed_ups(
    boundaries: pd.DataFrame, baseline: str, doubts: Doubts = NOTHING, by: Boundary | None = None
) -> pd.DataFrame:
    """One row per case: time of the baseline / time of the case, with its 95 % interval, paired by round.

    `baseline` is `precision/backend/variant`; each case is compared with that of its own model and shape. `boundary`
    is `by`; without that `device` where both have one, so GPU against GPU, and else `end_to_end`. `verdict` is about
    the case, and undecided where one of the two is in doubt. `not_measured` says why there is no speed-up. The
    baseline itself has no row.
    """
    samples = {key: _rounds(group) for key, group in boundaries.groupby([*KEY, "boundary"], sort=False)}
    cases = boundaries[KEY].drop_duplicates()
    named = cases["precision"] + "/" + cases["backend"] + "/" + cases["variant"] == baseline
    peers = {tuple(case[peer] for peer in PEERS): case for case in rows_of(cases[named])}
    rows = []
    for case in rows_of(cases[~named]):
        reference = peers.get(tuple(case[peer] for peer in PEERS))
        row = _speed_up(samples, case, reference, baseline, by)
        rows.append({**case, **_judged(row, case, reference, doubts)})
    return frame_of(rows, [*KEY, *SPEED_UP_COLUMNS])


def doubts_of(latency: pd.DataFrame) -> Doubts:
    """The latencies that are in doubt."""
    rows = rows_of(latency[latency["doubt"].notna()])
    return {(*key_of(row), row["boundary"]): row["doubt"] for row in rows}


def waited_of(hosts: pd.DataFrame) -> dict[tuple[Any, ...], float]:
    """KEY → the share of the time that a case waited for a core, where that is known. hosts: see `hosts`."""
    return {key_of(row): row["waited"] for row in rows_of(hosts) if row["waited"] is not None}


def rebuilds(latency: pd.DataFrame, builds: pd.DataFrame) -> pd.DataFrame:
    """One row per engine that was built several times, by variants that differ in the option `rebuild` alone.

    latency: see above. builds: KEY and `options`, the variant's. `spread` = slowest / fastest - 1 of the device
    medians; `noise`: the widest relative half width of their intervals, or None where one has none.
    """
    device = latency[(latency["boundary"] == "device") & latency["not_measured"].isna()]
    alike = builds.assign(alike=[but_for(REBUILD, options) for options in builds["options"]])
    groups = device.merge(alike, on=KEY, validate="many_to_one").groupby(
        [*PEERS, "precision", "backend", "alike"], sort=False
    )
    rows = [_spread(group) for _, group in groups if len(group) > 1 and any(REBUILD in o for o in group["options"])]
    return frame_of(rows, REBUILD_COLUMNS)


def hosts(hosts: pd.DataFrame) -> pd.DataFrame:
    """One row per case: how fast the host was itself, by records.hosts.

    `readings` of the yardstick in all rounds: the median `yardstick_ns` and the `spread` (stats.spread) of the time
    on a core, and `waited` = 1 - sum of the time on a core / sum of the time taken. `steal_percent`: of the round
    in which most was stolen. What is None has its reason in `not_measured` or `no_steal`.
    """
    rows = [{**dict(zip(KEY, key, strict=True)), **_host(group)} for key, group in hosts.groupby(KEY, sort=False)]
    return frame_of(rows, [*KEY, *HOST_COLUMNS])


def compared_by(a: Mapping[str, Rounds], b: Mapping[str, Rounds]) -> Boundary:
    """The boundary that two cases are compared by: `device` on two GPUs, `end_to_end` where a CPU takes part."""
    return "device" if a.get("device") and b.get("device") else "end_to_end"


def half_width(row: Mapping[str, Any]) -> float | None:
    """How far the farther end of the median's interval is from it, relative to it; None where there is none."""
    return None if row["low"] is None else max(row["high"] / row["median"] - 1, 1 - row["low"] / row["median"])


def _latency(rounds: pd.DataFrame) -> dict[str, Any]:
    measured = rounds[rounds["not_measured"].isna()]
    if measured.empty:
        return {"not_measured": "; ".join(dict.fromkeys(rounds["not_measured"])), "rounds": 0}
    summary = stats.summarize(np.concatenate(list(measured["samples"])))
    low, high = summary.interval or (None, None)
    drifts = [stats.drifted(samples) for samples in measured["samples"]]
    return {
        **dataclasses.asdict(summary),
        "low": low,
        "high": high,
        "rounds": len(measured),
        "stopped_by": ", ".join(sorted({str(how) for how in measured["stopped_by"] if how})),
        "settled": bool(all(measured["settled"])),
        "drift": max((drift for drift in drifts if drift is not None), key=abs, default=None),
        "settling": list(zip(measured["settled"], drifts, strict=True)),
        "not_measured": None,
    }


def _host(rounds: pd.DataFrame) -> dict[str, Any]:
    """The row of a case."""
    took, on_cpu = (list(itertools.chain(*rounds[column].dropna())) for column in ("took", "on_cpu"))
    stolen = [percent for percent in rounds["steal_percent"] if percent is not None]
    spread = stats.spread(on_cpu)
    few = f"{len(took)} readings of the yardstick, of which a spread needs {stats.SPREAD_SAMPLES}"
    return {
        "readings": len(took),
        "yardstick_ns": statistics.median(on_cpu) if took else None,
        "spread": spread,
        "waited": max(0.0, 1 - sum(on_cpu) / sum(took)) if took else None,
        "steal_percent": max(stolen, default=None),
        "not_measured": (few if took else rounds["not_measured"].iloc[0]) if spread is None else None,
        "no_steal": None if stolen else rounds["no_steal"].iloc[0],
    }


def _spread(engines: pd.DataFrame) -> dict[str, Any]:
    """The row of an engine's builds."""
    ordered = rows_of(engines.sort_values("median", kind="stable"))
    fastest, slowest = ordered[0], ordered[-1]
    widths = [half_width(row) for row in ordered]
    return {
        **{key: fastest[key] for key in (*PEERS, "precision", "backend")},
        "builds": len(ordered),
        "fastest": fastest["variant"],
        "fastest_ns": fastest["median"],
        "slowest": slowest["variant"],
        "slowest_ns": slowest["median"],
        "spread": slowest["median"] / fastest["median"] - 1,
        "noise": None if None in widths else max(width for width in widths if width is not None),
    }


def _rounds(group: pd.DataFrame) -> Rounds:
    rounds = zip(group["round"], group["samples"], group["not_measured"], strict=True)
    return {round_: samples for round_, samples, not_measured in rounds if not_measured is None}


def _judged(
    row: dict[str, Any], case: dict[str, Any], reference: dict[str, Any] | None, doubts: Doubts
) -> dict[str, Any]:
    """A speed-up without a verdict where one of the two measurements is in doubt, unless no doubt can turn it."""
    if reference is None or row.get("verdict") is None:
        return row
    sides = (("it", case), ("the baseline", reference))
    why = [f"{who}: {doubts[place]}" for who, of in sides if (place := (*key_of(of), row["boundary"])) in doubts]
    if not why:
        return row
    verdict = row["verdict"] if row["far"] else NO_VERDICT
    return {**row, "verdict": verdict, "reason": "; ".join(why), "in_doubt": True}


def _speed_up(
    samples: Mapping[tuple[Any, ...], Rounds],
    case: dict[str, Any],
    reference: dict[str, Any] | None,
    baseline: str,
    by: Boundary | None,
) -> dict[str, Any]:
    if reference is None:
        return {"not_measured": f"the baseline {baseline} was not measured for this model and shape"}
    of = [{b: samples.get((*key_of(c), b), {}) for b in ("device", "call", "end_to_end")} for c in (reference, case)]
    boundary = by or compared_by(of[0], of[1])
    base, this = (by_boundary[boundary] for by_boundary in of)
    common = sorted(set(base) & set(this))
    if not common:
        return {"boundary": boundary, "not_measured": f"no round has {boundary} for both this case and the baseline"}
    rounds = [base[r] for r in common], [this[r] for r in common]
    ratio = stats.ratio(*rounds)
    bounded = math.isfinite(ratio.high) and ratio.low > 0
    return {
        "boundary": boundary,
        "speed_up": 1 / ratio.estimate,
        "low": 1 / ratio.high if bounded else None,
        "high": 1 / ratio.low if bounded else None,
        "detectable": ratio.detectable if math.isfinite(ratio.detectable) else None,
        "rounds": ratio.rounds,
        "verdict": ratio.verdict,
        "reason": ratio.reason,
        "in_doubt": False,
        "far": stats.far_apart(*rounds),
    }
