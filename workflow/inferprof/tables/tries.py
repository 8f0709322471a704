"""Fixes that were tried: two cases that differ in one option, and what it came to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from inferprof.documents.diagnosed import TryOutcome
from inferprof.findings import END_TO_END, Tried
from inferprof.stats import ONE_ROUND_THRESHOLD, Verdict
from inferprof.tables import summary
from inferprof.tables.measurements import Measurements
from inferprof.tables.records import KEY, Key, Options, options_of, paired_without, rows_of

FIXES: Final[Mapping[tuple[str, Any], tuple[str, ...]]] = {
    ("cuda_graph", True): ("cuda_graph", "launch_bound", "host_work"),
    ("compile_mode", "reduce-overhead"): ("cuda_graph", "launch_bound", "host_work"),
    ("placement", "pinned"): ("pageable_copies",),
    ("placement", "mapped"): ("pageable_copies",),
}
"""Option of a variant and its value → the checks whose findings advise it, the nearest first."""
NO_DIFFERENCE: Final = ONE_ROUND_THRESHOLD
"""Share of the time that the whole interval of a change must lie within to be none."""
OUTCOMES: Final[Mapping[Verdict, TryOutcome]] = {
    "faster": "better",
    "slower": "backfired",
    "same": "no difference",
    "undecided": "undecided",
}


def pairs(options: Options) -> Iterator[tuple[Key, Key, tuple[str, Any]]]:
    """The case without a fix, the case with it, and the fix."""
    for option in dict.fromkeys(option for option, _ in FIXES):
        for after, without in paired_without(option, options).items():
            if (option, value := options[after][option]) in FIXES:
                yield from ((before, after, (option, value)) for before in without)


def of_model(
    measurements: Measurements, refused: Mapping[Key, str] = summary.NOTHING, planned: Options = summary.NOTHING
) -> dict[Key, dict[tuple[str, Any], Tried]]:
    """Case → fix → what it came to; of a fix that was not tried on the case, what it came to at its model and shape
    with other runtimes, if it was in vain with all of them.

    refused: cases that were refused, with their reasons; planned: their options.
    """
    options = {**planned, **options_of(measurements.records)}
    tried: defaultdict[Key, dict[tuple[str, Any], Tried]] = defaultdict(dict)
    beside: defaultdict[tuple[str, ...], list[tuple[tuple[str, Any], Tried]]] = defaultdict(list)
    for before, after, fix in pairs(options):
        result = of_pair(measurements, before, after, refused)
        tried[before][fix] = result
        beside[_place(before)].append((fix, result))
    for key, own in options.items():
        for fix, result in beside[_place(key)]:
            others = [other for other_fix, other in beside[_place(key)] if other_fix == fix]
            if fix[0] not in own and fix not in tried[key] and all(other.lost for other in others):
                tried[key][fix] = result
    return tried


def _place(key: Key) -> tuple[str, ...]:
    """Machine, model and shape."""
    names = dict(zip(KEY, key, strict=True))
    return tuple(names[name] for name in summary.PEERS)


def of_pair(
    measurements: Measurements, before: Key, after: Key, refused: Mapping[Key, str] = summary.NOTHING
) -> Tried:
    """What the step from one case to the other came to, by end_to_end and the rounds that both have."""
    variant = dict(zip(KEY, after, strict=True))["variant"]
    if after in refused:
        return Tried(variant, "refused", refused[after])
    if reason := measurements.failures.get(after):
        return Tried(variant, "failed", reason)
    frame = measurements.boundaries
    keys = list(zip(*(frame[name] for name in KEY), strict=True))
    both = frame.loc[[key in (before, after) for key in keys]]
    name = "/".join(before[KEY.index(part)] for part in ("precision", "backend", "variant"))
    rows = rows_of(summary.speed_ups(both, name, measurements.doubts, END_TO_END))
    if not rows or rows[0]["speed_up"] is None:
        return Tried(variant, "undecided", rows[0]["not_measured"] if rows else "the case was not measured")
    (row,) = rows
    median = measurements.medians[before]
    saved, low, high = (
        None if row[end] is None else median * (1 - 1 / row[end]) for end in ("speed_up", "low", "high")
    )
    outcome = OUTCOMES[row["verdict"]]
    in_doubt = any((*key, END_TO_END) in measurements.doubts for key in (before, after))
    small = all(bound is not None and abs(bound) <= NO_DIFFERENCE * median for bound in (low, high))
    if outcome == "undecided" and not in_doubt and small:
        outcome = "no difference"
    return Tried(variant, outcome, row["reason"], saved, low, high, in_doubt)
