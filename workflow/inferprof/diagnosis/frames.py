"""Reads what the results folder holds on a case, or on all cases of a model, into Frames."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd

from inferprof import documents, registry
from inferprof.case import EXCLUDED, PARALLEL, QUANTIZE, Case
from inferprof.diagnosis.kernel_time import inference_ns
from inferprof.diagnosis.times import bare_ns
from inferprof.documents import Kind
from inferprof.documents.base import Outcome
from inferprof.errors import UserError
from inferprof.files import unless_damaged
from inferprof.findings import END_TO_END, Documents, Frames, PairedCase, Total
from inferprof.tables import join, overhead, records, schema, tries, tuning
from inferprof.tables.limits import copies, waterfall
from inferprof.tables.measurements import Measurements
from inferprof.tables.nodes.providers import CALL, RUN, first_run_alone
from inferprof.tables.records import Key
from inferprof.tables.trace.kernel_compare import ITERATION

Read = Callable[[Path, Kind], Any]
"""documents.read."""
FIRST_ALONE: Final = "the first and only run, in which engines are built and nodes tune themselves,"


def load(results: Path, machine: str, case: Case, thresholds: Mapping[str, float] | None = None) -> Frames:
    """All that is known of a case. Raises UserError for a file that can't be read, and where there is none.

    Its peers are the cases of its model that have a record on the machine, of whatever study.
    """
    recorded = records.of_model(results, machine, case.model)
    own = pd.DataFrame([{"machine": machine, **dataclasses.asdict(case), "outcome": "run", "reason": ""}])
    cases = pd.concat([recorded, own]).drop_duplicates(records.KEY, ignore_index=True)
    peers = peers_of(records.read(results, cases))
    tried = tries.of_model(peers, *refused_of(results, machine, case.model))
    frames = _of_case(results, machine, case, peers, thresholds, documents.read)
    return dataclasses.replace(frames, tries=tried.get((machine, *case.path.parts), {}))


def of_model(
    results: Path,
    machine: str,
    model: str,
    thresholds: Mapping[str, float] | None = None,
    part: slice = slice(None),
) -> Iterator[Frames]:
    """`load` of each case of a model that has a record on the machine, or of a part of them. Raises UserError where
    none has one."""
    recorded = records.of_model(results, machine, model)
    if recorded.empty:
        raise UserError(f"{results / machine / 'benchmark'} has no record of {model}: inferprof run")
    peers = peers_of(records.read(results, recorded))
    tried = tries.of_model(peers, *refused_of(results, machine, model))
    read = functools.cache(documents.read)  # the cases share those of the machine, and of their graphs
    for names in recorded[records.CASE_KEY][part].itertuples(index=False, name=None):
        frames = _of_case(results, machine, Case(*names), peers, thresholds, read)
        yield dataclasses.replace(frames, tries=tried.get((machine, *names), {}))


def peers_of(rows: pd.DataFrame) -> Measurements:
    """What the cases of a model on a machine have in common, as in the report. rows: records.read of all of them."""
    planned = rows[records.KEY].drop_duplicates().assign(outcome="run", reason="")
    return Measurements(join.outcomes(planned, rows), records.sound(rows))


def refused_of(results: Path, machine: str, model: str) -> tuple[dict[Key, str], dict[Key, dict[str, Any]]]:
    """The cases of a model that the studies of these results refused, with the reasons; and their options. What a
    config leaves out is not refused."""
    reasons: dict[Key, str] = {}
    options: dict[Key, dict[str, Any]] = {}
    for path in sorted((results / "reports").glob("**/cases.csv")):
        config = path.with_name("config.json")
        given = unless_damaged(documents.read, config, "config") if config.exists() else None
        variants = given.variants if given else []
        by_name = {entry["name"]: {k: v for k, v in entry.items() if k != "name"} for entry in variants}
        cases = unless_damaged(records.read_cases, path)
        if cases is None:
            continue
        own = cases[(cases[["machine", "model"]] == [machine, model]).all(axis=1) & cases["outcome"].eq("refused")]
        for row in records.rows_of(own[own["variant"].isin(by_name)]):
            if not row["reason"].startswith(EXCLUDED):
                reasons[records.key_of(row)] = row["reason"]
                options[records.key_of(row)] = by_name[row["variant"]]
    return reasons, options


def _of_case(
    results: Path,
    machine: str,
    case: Case,
    peers: Measurements,
    thresholds: Mapping[str, float] | None,
    read: Read,
) -> Frames:
    """The frames of a case."""
    if not _tables(results, machine, case) and not records.paths(results, machine, case):
        raise UserError(f"{results / machine} has neither a record nor a table of {case}: inferprof run, or table")
    profiles = _profiles(results, machine, case)
    folder = results / machine / "capture"
    watched = [
        (machine, path.relative_to(folder).parts[0], record)
        for path in sorted(folder.glob(f"*/{case.path}.record.json"))
        if (record := unless_damaged(documents.read, path, "watched", results))
    ]
    given = documents_of(results, machine, case, read)
    frames = of_tables(machine, case, peers, profiles, given, overhead.profiled_runs(watched))
    return dataclasses.replace(
        frames,
        best_counters=dict(_best_counters(results, frames)),
        undivided=_without(PARALLEL, machine, case, peers),
        unquantized=_unquantized(results, machine, case, peers),
        thresholds=dict(thresholds or {}),
    )


def _tables(results: Path, machine: str, case: Case) -> list[Path]:
    """The files of a case's tidy tables, one per tool."""
    return sorted((results / machine / "table").glob(f"*/{case.path}.parquet"))


def _profiles(results: Path, machine: str, case: Case) -> pd.DataFrame:
    """The tidy tables of a case, of all tools."""
    read = (unless_damaged(schema.read_table, path, events=False) for path in _tables(results, machine, case))
    tables = [table for table in read if table is not None]
    return schema.shared(pd.concat(tables)) if tables else pd.DataFrame(columns=list(schema.COLUMNS))


def _unquantized(results: Path, machine: str, case: Case, peers: Measurements) -> PairedCase | None:
    """The case with the same options but for `quantize`; None where there is none, or nothing is quantized."""
    plain = _without(QUANTIZE, machine, case, peers)
    if plain is None:
        return None
    record = _of(peers, "ok", (machine, *plain.path.parts))["record"].iloc[0]
    return PairedCase(plain, record, _profiles(results, machine, plain))


def _without(option: str, machine: str, case: Case, peers: Measurements) -> Case | None:
    """The measured case that is the same but for an option; None without one, or where the case lacks the option."""
    paired = peers.once(Measurements.paired_without, option).get((machine, *case.path.parts))
    return Case(*paired[0][1:]) if paired else None


def _best_counters(results: Path, frames: Frames) -> Iterator[tuple[str, pd.DataFrame]]:
    """Frames.best_counters: of kernels that run another configuration than the fastest known."""
    for choice in records.rows_of(tuning.choices(frames.records)):
        best = tuning.best_known(frames.trials, choice["kernel"], choice["key"])
        if best is None or best["config"] == choice["config"]:
            continue
        for row in tuning.running(frames.trials, best):
            other = Case(*(row[name] for name in records.CASE_KEY))
            folders = (results / frames.machine / "table" / tool for tool in registry.counters())
            path = next((path for folder in folders if (path := folder / f"{other.path}.parquet").exists()), None)
            if path is not None and (table := unless_damaged(schema.read_table, path)) is not None:
                yield choice["kernel"], table
                break


def of_tables(
    machine: str,
    case: Case,
    peers: Measurements,
    profiles: pd.DataFrame,
    case_documents: Documents | None = None,
    watched: pd.DataFrame | None = None,
) -> Frames:
    """Frames of a case. profiles: its own tidy tables; watched: overhead.profiled_runs of it."""
    given = case_documents or Documents()
    key = (machine, *case.path.parts)
    own, latency, stages, traffic = (_of(peers, name, key) for name in ("ok", "latency", "stages", "traffic"))
    tool, timeline = waterfall.traced(profiles)
    bare = peers.once(_bare_times).get(key)
    return Frames(
        machine=machine,
        case=case,
        total=_total(latency, profiles, tool),
        records=own,
        latency=latency,
        stages=stages,
        floors=copies.floors(stages, traffic, given.bandwidth),
        profiles=profiles,
        tool=tool,
        timeline=profiles.iloc[:0] if timeline is None else timeline,
        overheads=overhead.ledger(latency, profiles, overhead.profiled_runs(()) if watched is None else watched),
        waterfall=waterfall.of_case(bare, profiles)
        if bare
        else {"total_ns": None, "not_measured": "the case has no record"},
        peers=peers.measured,
        trials=peers.trials,
        documents=given,
        failure=_failure(peers, key),
    )


def _failure(peers: Measurements, key: records.Key) -> str | None:
    """Why a case failed, or what is wrong with its only record; None where neither is so."""
    own = _of(peers, "outcomes", key)
    return str(own["reason"].iloc[0]) if len(own) and own["outcome"].iloc[0] != "ok" else None


def _bare_times(peers: Measurements) -> dict[Key, dict[str, Any]]:
    return {records.key_of(row): row for row in waterfall.bare_times(peers.latency, peers.stages)}


def _of(peers: Measurements, name: str, key: Key) -> pd.DataFrame:
    """The rows of a case in the frame of this name."""
    rows = peers.once(_by_case, name).get(key)
    return getattr(peers, name).iloc[:0] if rows is None else rows


def _by_case(peers: Measurements, name: str) -> dict[Key, pd.DataFrame]:
    return {tuple(map(str, key)): rows for key, rows in getattr(peers, name).groupby(records.KEY, sort=False)}


def documents_of(results: Path, machine: str, case: Case, read: Read = documents.read) -> Documents:
    """The JSON files about a case's machine and graph."""

    def content(path: Path, kind: Kind) -> Any:
        document: Outcome | None = unless_damaged(read, path, kind) if path.exists() else None
        return None if document is None or document.failure else document

    graph = results / "onnx" / case.model
    return Documents(
        environment=content(results / machine / "environment.json", "environment"),
        bandwidth=content(results / machine / "bandwidth.json", "bandwidth"),
        ceilings=content(results / machine / "ceilings.json", "ceilings"),
        links=content(results / machine / "links.json", "links"),
        cost=content(graph / f"{case.precision}.{case.shape}.cost.json", "cost"),
        partition=content(graph / f"{case.precision}.partition.json", "partition"),
        serving=tuple(
            document
            for path in sorted((results / machine / "serving").glob(f"*/{case.path}.json"))
            if (document := content(path, "serving"))
        ),
    )


def _total(latency: pd.DataFrame, profiles: pd.DataFrame, tool: str | None) -> Total | None:
    """What shares are of: where nothing was measured bare, what the profile that knows most saw of an inference. None
    where that is no time."""
    ns, of = _time_and_name(latency, profiles, tool)
    return Total(ns, of) if ns else None


def _time_and_name(latency: pd.DataFrame, profiles: pd.DataFrame, tool: str | None) -> tuple[float | None, str]:
    """The ns of an inference, and of what they are."""
    bare = bare_ns(latency, END_TO_END)
    if bare is not None:
        return bare, END_TO_END
    medians = profiles[profiles["level"].eq("range") & profiles["metric"].eq("duration_median")]
    iterations = medians[medians["name"].eq(ITERATION) & medians["tool"].eq(tool or "")]
    if len(iterations):
        return float(iterations["value"].iloc[0]), f"an iteration under {tool}"
    runs = medians[medians["name"].isin((RUN, CALL))]
    if len(runs):
        ran = FIRST_ALONE if first_run_alone(profiles) else "a run"
        return float(runs["value"].iloc[0]), f"{ran} by ONNX Runtime's profile"
    return inference_ns(profiles), "the kernels of an inference under a profiler"
