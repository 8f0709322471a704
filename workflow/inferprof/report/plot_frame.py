"""What the plots draw: one row per case that is ok."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from inferprof import registry
from inferprof.case import Shape
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

if TYPE_CHECKING:
    import pandas as pd

SEQUENCE = "s"
"""The symbol of a shape for the length of a sequence."""
SPEED_UP = {"speed_up": "speed_up", "low": "speed_up_low", "high": "speed_up_high", "verdict": "verdict"}
SPEED_UP_BY = "speed_up_by"


def of(evidence: Evidence) -> pd.DataFrame:
    """tables.join.measured with the stages, the parts of the waterfall (`{part}_part_ms`), roofline.FOR_PLOTS, and

    sequence                     the length of the sequence, where the shape has one
    sqnr_db, identical, accuracy by format
    speed_up, speed_up_low, speed_up_high, verdict, speed_up_by   over the baseline, whose verdict is `baseline`
    end_to_end_samples           ns, of all rounds
    kernel_classes               class → share of the kernel time of an iteration
    iteration                    gpu_busy and idle_* → share of an iteration
    events, events_tool          one iteration (one_iteration.of_case), of the smallest shape with one
    telemetry                    samples of the first round: a list for each field
    graph_curve                  tables.graph_memory.curves of the first round
    trials                       tables.tuning.trials of the first round, of choices among several

    What was not measured is missing.
    """
    frame = evidence.measured.merge(evidence.stages, on=KEY, how="left", validate="one_to_one")
    frame = frame.merge(waterfall.in_ms(evidence.waterfall), on=KEY, how="left", validate="one_to_one")
    roofs = evidence.roofline[[*KEY, *roofline.FOR_PLOTS]].astype(roofline.FOR_PLOTS)
    frame = frame.merge(roofs, on=KEY, how="left", validate="one_to_one")
    frame = frame.merge(_speed_ups(evidence), on=KEY, how="left", validate="one_to_one")
    frame.loc[frame.apply(lambda row: name_of(row) == evidence.baseline, axis=1), "verdict"] = "baseline"
    traced = first_of(evidence, registry.tracers(), _has_iteration)
    by_key = {
        "end_to_end_samples": _samples(evidence),
        "telemetry": _telemetry(evidence),
        "graph_curve": _of_first_rounds(evidence, graph_memory.curves),
        "trials": _of_first_rounds(evidence, _tried),
        "kernel_classes": {key_of(one.case): one.classes for one in chosen(evidence, "kernel")},
        "iteration": {key_of(one.case): _iteration(one) for one in traced},
        **_events(evidence, frame, traced),
    }
    keys = [key_of(row) for row in rows_of(frame)]
    found = [fidelity.of_case(evidence, row) for row in rows_of(frame)]
    return frame.assign(
        sequence=_objects(Shape.parse(label).as_dict().get(SEQUENCE) for label in frame["shape"]),
        sqnr_db=_objects(one.sqnr_db for one in found),
        identical=[one.identical for one in found],
        accuracy=[one.outcome for one in found],
        **{column: _objects(values.get(key) for key in keys) for column, values in by_key.items()},
    ).astype({"sqnr_db": float})


def _objects(values: Iterable[Any]) -> pd.Series:
    import pandas as pd

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
    found: dict[tuple[str, ...], Any] = {}
    for row in rows_of(evidence.records[evidence.records["status"] == "ok"]):
        if (telemetry := row["record"].telemetry) and telemetry.samples:
            found.setdefault(key_of(row), telemetry.samples)
    return found


def _of_first_rounds(
    evidence: Evidence, rows_in: Callable[[pd.DataFrame], pd.DataFrame]
) -> dict[tuple[str, ...], Any]:
    """KEY → the rows that its first round gives; nothing of a case without."""
    first = evidence.records[evidence.records["status"] == "ok"].drop_duplicates(KEY)
    groups = rows_in(first).groupby(KEY, sort=False)
    return {tuple(map(str, key)): rows for key, rows in groups}


def _tried(records: pd.DataFrame) -> pd.DataFrame:
    trials = tuning.trials(records)
    return trials[trials["source"] == "tried"]


def _iteration(profile: Profile) -> dict[str, float]:
    """gpu_busy and idle_* of the first device as shares of their sum; empty where there is no iteration."""
    frame = profile.frame
    metrics = ["gpu_busy", *(f"idle_{cause}" for cause in IDLE_CAUSES), "idle_other_process"]
    rows = frame[(frame["level"] == "range") & (frame["name"] == ITERATION) & frame["metric"].isin(metrics)]
    rows = rows[rows["device"] == rows["device"].min()]
    found = dict(zip(rows["metric"], rows["value"].astype(float), strict=True))
    total = sum(found.values())
    return {metric: value / total for metric, value in found.items()} if total else {}


def _has_iteration(profile: Profile) -> bool:
    return bool(_iteration(profile))


def _events(evidence: Evidence, frame: pd.DataFrame, traced: list[Profile]) -> dict[str, dict[tuple[str, ...], Any]]:
    """The columns `events` and `events_tool`, of each model's smallest shape with traced cases: read here, because
    all events of a study would fill the memory."""
    batch = {key_of(row): row["batch"] for row in rows_of(frame)}
    traced = [one for one in traced if key_of(one.case) in batch]
    smallest: dict[str, int] = {}
    for one in traced:
        smallest[one.case["model"]] = min(batch[key_of(one.case)], smallest.get(one.case["model"], 1 << 62))
    found: dict[str, dict[tuple[str, ...], Any]] = {"events": {}, "events_tool": {}}
    for one in traced:
        if batch[key_of(one.case)] == smallest[one.case["model"]]:
            path = evidence.results / one.case["machine"] / "table" / one.tool / f"{path_of(one.case)}.parquet"
            events = one_iteration.of_case(schema.read_table(path))
            if len(events):
                found["events"][key_of(one.case)] = events
                found["events_tool"][key_of(one.case)] = one.tool
    return found
