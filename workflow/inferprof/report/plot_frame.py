"""What the plots draw: one row per case that is ok."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from inferprof import registry
from inferprof.case import BATCH, Shape
from inferprof.report import fidelity
from inferprof.report.common import name_of, path_of
from inferprof.report.evidence import Evidence
from inferprof.report.profiled import Profile, chosen, first_of
from inferprof.tables import graph_memory, schema, tuning
from inferprof.tables.limits import roofline, waterfall
from inferprof.tables.records import KEY, key_of, rows_of
from inferprof.tables.trace import one_iteration
from inferprof.tables.trace.idle import IDLE_CAUSES
from inferprof.tables.trace.kernel_compare import ITERATION

SEQUENCE = re.compile(r"s|seq.*|.*len(gth)?|tokens?")
"""Symbols of a shape that are the length of a sequence, as exporters name it."""
SPEED_UP = {"speed_up": "speed_up", "low": "speed_up_low", "high": "speed_up_high", "verdict": "verdict"}
SPEED_UP_BY = "speed_up_by"


def of(evidence: Evidence) -> pd.DataFrame:
    """tables.join.measured with the stages, the parts of the waterfall (`{part}_part_ms`), roofline.FOR_PLOTS, and

    sequence                     the length of the sequence, where the shape has one
    sqnr_db, identical, accuracy by format
    standing, against            between accuracy and speed: tables.limits.pareto.of_cases
    speed_up, speed_up_low, speed_up_high, verdict, speed_up_by   over the baseline, whose verdict is `baseline`
    end_to_end_samples           ns, of all rounds
    kernel_classes               class → share of the kernel time of an iteration
    iteration                    gpu_busy and idle_* → share of an iteration
    events, events_tool          one iteration (one_iteration.of_case), of the smallest shape with one
    telemetry                    samples of the first round: a list for each field
    graph_curve                  tables.graph_memory.curves of the first round
    served                       the documents of the case under load, a tuple
    trials                       tables.tuning.trials of the first round, of choices among several

    What was not measured is missing.
    """
    frame = evidence.measured.merge(evidence.stages, on=KEY, how="left", validate="one_to_one")
    frame = frame.merge(waterfall.in_ms(evidence.waterfall), on=KEY, how="left", validate="one_to_one")
    roofs = evidence.roofline[[*KEY, *roofline.FOR_PLOTS]].astype(roofline.FOR_PLOTS)
    frame = frame.merge(roofs, on=KEY, how="left", validate="one_to_one")
    frame = frame.merge(_speed_ups(evidence), on=KEY, how="left", validate="one_to_one")
    table = evidence.once(fidelity.standings)[[*KEY, "standing", "against"]]
    frame = frame.merge(table, on=KEY, how="left", validate="one_to_one")
    frame.loc[frame.apply(lambda row: name_of(row) == evidence.baseline, axis=1), "verdict"] = "baseline"
    traced = first_of(evidence, registry.tracers(), _has_iteration)
    by_key = {
        "end_to_end_samples": _samples(evidence),
        "telemetry": _telemetry(evidence),
        "graph_curve": _of_first_rounds(evidence, graph_memory.curves),
        "trials": _of_first_rounds(evidence, _tried),
        "served": _served(evidence),
        "kernel_classes": {key_of(profile.case): profile.classes for profile in chosen(evidence, "kernel")},
        "iteration": {key_of(profile.case): _iteration(profile) for profile in traced},
        **_events(evidence, frame, traced),
    }
    keys = [key_of(row) for row in rows_of(frame)]
    fidelities = [fidelity.of_case(evidence, row) for row in rows_of(frame)]
    return frame.assign(
        sequence=_objects(_length(Shape.parse(label)) for label in frame["shape"]),
        sqnr_db=_objects(result.sqnr_db for result in fidelities),
        identical=[result.identical or result.outcome == "reference" for result in fidelities],
        accuracy=[result.outcome for result in fidelities],
        **{column: _objects(values.get(key) for key in keys) for column, values in by_key.items()},
    ).astype({"sqnr_db": float})


def _objects(values: Iterable[Any]) -> pd.Series:
    return pd.Series(list(values), dtype=object)


def _speed_ups(evidence: Evidence) -> pd.DataFrame:
    columns = {**SPEED_UP, "boundary": SPEED_UP_BY}
    table = evidence.speed_ups[[*KEY, *columns]].rename(columns=columns)
    return table.astype({column: float for column in SPEED_UP.values() if column != "verdict"})


def _samples(evidence: Evidence) -> dict[tuple[str, ...], Any]:
    """KEY → the samples of end_to_end of all rounds."""
    import numpy as np

    frame = evidence.boundaries
    measured = frame[(frame["boundary"] == "end_to_end") & frame["not_measured"].isna()]
    groups = measured.groupby(KEY, sort=False)["samples"]
    return {tuple(map(str, key)): np.concatenate(list(rounds)) for key, rounds in groups}


def _telemetry(evidence: Evidence) -> dict[tuple[str, ...], Any]:
    """KEY → the samples of the first round that has any."""
    by_key: dict[tuple[str, ...], Any] = {}
    for row in rows_of(evidence.records[evidence.records["status"] == "ok"]):
        if (telemetry := row["record"].telemetry) and telemetry.samples:
            by_key.setdefault(key_of(row), telemetry.samples)
    return by_key


def _of_first_rounds(
    evidence: Evidence, rows_in: Callable[[pd.DataFrame], pd.DataFrame]
) -> dict[tuple[str, ...], Any]:
    """KEY → the rows that its first round gives; nothing of a case without."""
    first = evidence.records[evidence.records["status"] == "ok"].drop_duplicates(KEY)
    groups = rows_in(first).groupby(KEY, sort=False)
    return {tuple(map(str, key)): rows for key, rows in groups}


def _served(evidence: Evidence) -> dict[tuple[str, ...], Any]:
    """KEY → the documents of the case under load; none whose requests have prompts."""
    by_key: dict[tuple[str, ...], Any] = {}
    for document in evidence.served:
        policy = document.content and document.content.policy
        if document.content and document.content.case and not (policy and policy.generates):
            key = (evidence.machine, *document.content.case.path.split("/"))
            by_key[key] = (*by_key.get(key, ()), document.content)
    return by_key


def _tried(records: pd.DataFrame) -> pd.DataFrame:
    trials = tuning.trials(records)
    return trials[trials["source"] == "tried"]


def _iteration(profile: Profile) -> dict[str, float]:
    """gpu_busy and idle_* of the first device as shares of their sum; empty where there is no iteration."""
    frame = profile.frame
    metrics = ["gpu_busy", *(f"idle_{cause}" for cause in IDLE_CAUSES), "idle_other_process"]
    rows = frame[(frame["level"] == "range") & (frame["name"] == ITERATION) & frame["metric"].isin(metrics)]
    rows = rows[rows["device"] == rows["device"].min()]
    times = dict(zip(rows["metric"], rows["value"].astype(float), strict=True))
    total = sum(times.values())
    return {metric: value / total for metric, value in times.items()} if total else {}


def _has_iteration(profile: Profile) -> bool:
    return bool(_iteration(profile))


def _events(evidence: Evidence, frame: pd.DataFrame, traced: list[Profile]) -> dict[str, dict[tuple[str, ...], Any]]:
    """The columns `events` and `events_tool`, of each model's smallest shape with traced cases: read here, because
    all events of a study would fill the memory."""
    batch = {key_of(row): row["batch"] for row in rows_of(frame)}
    traced = [watched for watched in traced if key_of(watched.case) in batch]
    smallest: dict[str, int] = {}
    for profile in traced:
        smallest[profile.case["model"]] = min(
            batch[key_of(profile.case)], smallest.get(profile.case["model"], 1 << 62)
        )
    columns: dict[str, dict[tuple[str, ...], Any]] = {"events": {}, "events_tool": {}}
    for profile in traced:
        if batch[key_of(profile.case)] == smallest[profile.case["model"]]:
            folder = evidence.results / profile.case["machine"] / "table" / profile.tool
            path = folder / f"{path_of(profile.case)}.parquet"
            events = one_iteration.of_case(schema.read_table(path, events=True))
            if len(events):
                columns["events"][key_of(profile.case)] = events
                columns["events_tool"][key_of(profile.case)] = profile.tool
    return columns


def _length(shape: Shape) -> int | None:
    """The length of the sequence; None where no symbol of the shape is one, or several are."""
    lengths = [size for symbol, size in shape.sizes if symbol != BATCH and SEQUENCE.fullmatch(symbol)]
    return lengths[0] if len(lengths) == 1 else None
