"""Everything that a report rests on, read once from the results folder."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from inferprof import selection
from inferprof.case import QUANTIZE, Case
from inferprof.diagnosis.unsteady_host import HOST_WAITED
from inferprof.documents import (
    Bandwidth,
    Ceilings,
    Cost,
    Diagnosis,
    Environment,
    Links,
    Partition,
    Serving,
    StudyConfig,
    Trail,
    Trtexec,
)
from inferprof.documents.study import Asked
from inferprof.errors import UserError
from inferprof.files import left_out
from inferprof.findings import Threshold
from inferprof.plugins import Boundary
from inferprof.report import broken
from inferprof.report.documents import Document, Engine, Reader
from inferprof.tables import join, overhead, records, roofs, schema, summary
from inferprof.tables.limits import copies, roofline, saturation, speed_up_flags, tile_advice, waterfall
from inferprof.tables.measurements import Measurements
from inferprof.tables.roofs import Roofs


@dataclass(frozen=True, eq=False)
class Evidence(Measurements):
    """What was read of a study on a machine, and what follows from it (see tables/), each derived once."""

    results: Path
    study: str
    machine: str
    baseline: str | None
    profiles: pd.DataFrame
    """The tidy tables of all profilers."""
    profiled_runs: pd.DataFrame
    """The runs that were watched: tables.overhead.profiled_runs."""
    documents: Mapping[tuple[str, str, str], Document[Any]]
    """(model, precision, convert | audit | accuracy) → document."""
    partitions: Mapping[tuple[str, str], Document[Partition]]
    """(model, precision) → what TensorRT's parser takes of the graph: backends.tensorrt_partition."""
    costs: Mapping[tuple[str, str, str], Document[Cost]]
    """(model, precision, shape) → what a graph computes and moves: inferprof.model.cost."""
    engines: tuple[Engine, ...]
    second_clocks: tuple[Document[Trtexec], ...]
    """What trtexec says of TensorRT's engines: trtexec.measure."""
    served: tuple[Document[Serving], ...]
    """What came of cases under load: serving.measure."""
    searches: tuple[Document[Trail], ...]
    """The searches for the best case: best.search."""
    environment: Document[Environment]
    bandwidth: Document[Bandwidth]
    """Of the link and the device's memory: devices.bandwidth.measure."""
    ceilings: Document[Ceilings]
    """Of the GPU's matrix products and memory: devices.ceilings.measure."""
    links: Document[Links]
    """Of collectives between GPUs: links.measure."""
    refused_profilers: Document[Mapping[str, str]]
    """Profiler → why it could watch none of the cases."""
    config: Document[StudyConfig]
    """The study's own, as the plan wrote it."""
    diagnoses: Mapping[tuple[str, ...], Document[Diagnosis]]
    """KEY of a case → its diagnosis (diagnosis.run.document), of those that were diagnosed."""
    damaged: tuple[Document[Any], ...]
    """The documents that are there and were left out, since they are not what inferprof writes."""
    failed: tuple[Document[Any], ...]
    """The documents of stages that failed, captures apart: their tables have the reason."""
    waiting: pd.DataFrame | None = None
    """While the study runs: the rows of cases.csv that are still to come, which `outcomes` lacks; else None."""

    @functools.cached_property
    def speed_ups(self) -> pd.DataFrame:
        """Over the baseline: tables.summary.speed_ups, those that are none flagged."""
        return self.speed_ups_by(None)

    def speed_ups_by(self, boundary: Boundary | None) -> pd.DataFrame:
        """The same by one boundary."""
        frame = summary.speed_ups(self.boundaries, self.baseline or "", self.doubts, boundary)
        options = records.options_of(self.ok)
        return speed_up_flags.flagged(frame, self.profiles, self.roofline, self.baseline, options)

    @property
    def boundary(self) -> Boundary:
        """What the answer compares by: the config's `answer: boundary`, else what a caller waits for."""
        return self.asked.boundary

    @property
    def asked(self) -> Asked:
        """The config's `answer:`."""
        return self.config.content.answer if self.config.content else Asked()

    def limit(self, threshold: Threshold) -> float:
        """A threshold's value: the config's where it has one, also where only the diagnoses tell."""
        documents: tuple[Document[Any], ...] = (self.config, *self.diagnoses.values())
        moved = (document.content.thresholds.get(threshold.name) for document in documents if document.content)
        return float(next((limit for limit in moved if limit is not None), threshold.value))

    @property
    def waited_limit(self) -> float:
        """The config's `thresholds: host_waited`."""
        return self.limit(HOST_WAITED)

    @functools.cached_property
    def controls(self) -> frozenset[records.Key]:
        """Cases of engines that were built once more: they show the spread of builds, and none is recommended."""
        built = {engine.key: engine.build.content.options for engine in self.engines if engine.build.content}
        options = [*records.options_of(self.ok).items(), *built.items()]
        return frozenset(key for key, given in options if summary.REBUILD in given)

    @functools.cached_property
    def floors(self) -> pd.DataFrame:
        """h2d and d2h against what the link needs: tables.limits.copies.floors."""
        return copies.floors(self.stages, self.traffic, self.bandwidth.content)

    @functools.cached_property
    def checks(self) -> pd.DataFrame:
        """The self-checks: tables.records.checks."""
        return records.checks(self.records)

    @functools.cached_property
    def overheads(self) -> pd.DataFrame:
        """What the profilers cost: tables.overhead.ledger."""
        return overhead.ledger(self.latency, self.profiles, self.profiled_runs)

    @functools.cached_property
    def waterfall(self) -> pd.DataFrame:
        """Where end_to_end goes: tables.limits.waterfall.of_cases."""
        return waterfall.of_cases(self.latency, self.stages, self.profiles)

    @functools.cached_property
    def rebuilds(self) -> pd.DataFrame:
        """The spread over engines that were built several times: tables.summary.rebuilds."""
        return summary.rebuilds(self.latency, _builds(self.engines))

    @functools.cached_property
    def roofs(self) -> Roofs:
        """Those of the machine's GPU."""
        return roofs.of_machine(self.environment.content, self.ceilings.content, self.bandwidth.content)

    @functools.cached_property
    def roofline(self) -> pd.DataFrame:
        """The cases on a GPU against its roofs: tables.limits.roofline.by_case."""
        costs = {graph: cost.content for graph, cost in self.costs.items()}
        return roofline.by_case(self.measured, self.ok, costs, self.roofs)

    @functools.cached_property
    def saturation(self) -> pd.DataFrame:
        """Where each series of batches saturates: tables.limits.saturation.of_cases."""
        return saturation.of_cases(self.trusted, self.waterfall, self.roofline)

    @property
    def tiles(self) -> pd.DataFrame:
        """The products of the cases and the tiles that compute them: tables.limits.tile_advice.of_cases."""
        return self.once(_tiles)[0]

    @property
    def tile_advice(self) -> pd.DataFrame:
        """The sizes at which these tiles would waste less: the same."""
        return self.once(_tiles)[1]

    @property
    def models(self) -> list[str]:
        """The models in the order of the study."""
        return list(dict.fromkeys(self.outcomes["model"]))

    @property
    def variants(self) -> list[tuple[str, str]]:
        """(model, precision) in the order of the study."""
        return list(dict.fromkeys(zip(self.outcomes["model"], self.outcomes["precision"], strict=True)))

    @property
    def order(self) -> dict[tuple[str, str], int]:
        """(model, shape) → its place: models as in the study, their shapes by batch."""
        pairs = records.rows_of(self.outcomes[["model", "shape", "batch"]].drop_duplicates())
        models = self.models
        pairs.sort(key=lambda pair: (models.index(pair["model"]), pair["batch"], len(pair["shape"]), pair["shape"]))
        return {(pair["model"], pair["shape"]): place for place, pair in enumerate(pairs)}

    @functools.cached_property
    def quantized(self) -> frozenset[str]:
        """The variants whose weights torch quantizes, of those that were measured."""
        of_variants = zip(self.records["variant"], self.records["record"], strict=True)
        return frozenset(variant for variant, record in of_variants if QUANTIZE in record.options)

    @property
    def planned(self) -> list[Case]:
        """The cases that were to run."""
        return [
            Case(*row) for row in self.outcomes.loc[self.outcomes["outcome"] != "refused", records.CASE_KEY].values
        ]

    @property
    def selected(self) -> bool:
        """Whether the first round decided which cases have further ones and captures."""
        return (self.results / "reports" / self.study / selection.NAME).exists()

    @functools.cached_property
    def unused_profilers(self) -> tuple[str, ...]:
        """Those of the config that could watch a case, and that `captures: winners` had watch none."""
        config, refused = self.config.content, self.refused_profilers.content or {}
        if config is None or config.captures == "all" or not self.selected or self.waiting is not None:
            return ()
        able = [name for name in config.profilers if name not in refused]
        return tuple(name for name in able if not any(self.watched(name, case) for case in self.planned))

    def watched(self, profiler: str, case: Case) -> bool:
        """Whether a profiler was put around a case, whatever came of it."""
        made = (f"capture/{profiler}/{case.path}.record.json", f"table/{profiler}/{case.path}.parquet")
        return any((self.results / self.machine / file).exists() for file in made)

    @property
    def rounds(self) -> int:
        """The most rounds that any case has."""
        return max(self.outcomes["rounds"], default=0)

    def to_come(self, model: str | None = None) -> int:
        """How many cases, of a model, are still to be measured."""
        if self.waiting is None:
            return 0
        return len(self.waiting) if model is None else int(self.waiting["model"].eq(model).sum())

    def of(self, outcome: str) -> pd.DataFrame:
        """The cases that are ok, failed, refused or broken."""
        return self.outcomes[self.outcomes["outcome"] == outcome]


def load(results: Path, study: str, machine: str, cases: pd.DataFrame, baseline: str | None) -> Evidence:
    """Read all that the results folder holds on these cases. UserError: a broken file, or another machine's cases."""
    record_rows = records.read(results, _of_machine(cases, study, machine))
    outcomes = _explained(results, join.outcomes(cases, record_rows))
    reader = Reader(results, outcomes, damaged=_damaged(record_rows))
    evidence = Evidence(
        results=results,
        study=study,
        machine=machine,
        baseline=baseline,
        outcomes=outcomes,
        records=records.sound(record_rows),
        profiles=_profiles(reader),
        engines=tuple(reader.engines(machine)),
        environment=reader.read(results / machine / "environment.json", "environment"),
        bandwidth=reader.read(results / machine / "bandwidth.json", "bandwidth"),
        ceilings=reader.read(results / machine / "ceilings.json", "ceilings"),
        links=reader.read(results / machine / "links.json", "links"),
        costs=reader.costs(),
        profiled_runs=overhead.profiled_runs(reader.profiled_runs()),
        documents=reader.of_graphs(),
        partitions=reader.partitions(),
        second_clocks=tuple(reader.second_clocks()),
        served=tuple(reader.served()),
        searches=tuple(reader.searches(machine)),
        refused_profilers=reader.read(results / "reports" / study / "profilers.json", "profilers"),
        config=reader.read(results / "reports" / study / "config.json", "config"),
        diagnoses=dict(reader.diagnoses()),
        damaged=tuple(reader.damaged),
        failed=tuple(reader.failed),
    )
    for document in evidence.damaged:
        left_out(str(document.damage))
    return evidence


def _of_machine(cases: pd.DataFrame, study: str, machine: str) -> pd.DataFrame:
    if len(cases) and machine not in (machines := list(dict.fromkeys(cases["machine"]))):
        raise UserError(f"the study {study} has no case of the machine {machine}; known: {', '.join(machines)}")
    return cases


def _explained(results: Path, outcomes: pd.DataFrame) -> pd.DataFrame:
    """The outcomes with the end of the log as the reason of each case without a record."""
    for index, row in outcomes[outcomes["outcome"].eq("broken") & outcomes["reason"].eq(join.NO_RECORD)].iterrows():
        case = Case(*(row[key] for key in records.CASE_KEY))
        outcomes.loc[index, "reason"] = broken.reason(results, row["machine"], case)
    return outcomes


def _damaged(rows: pd.DataFrame) -> list[Document[Any]]:
    """The records that can't be read."""
    lost = records.rows_of(rows[rows["status"].eq(records.DAMAGED)])
    return [Document(row["file"], None, damage=row["reason"]) for row in lost]


def _profiles(reader: Reader) -> pd.DataFrame:
    """The profilers' tables of the cases that were to run, without single events, which are many."""
    tables = list(reader.tables())
    return schema.shared(pd.concat(tables)) if tables else pd.DataFrame(columns=list(schema.COLUMNS))


def _tiles(evidence: Evidence) -> tuple[pd.DataFrame, pd.DataFrame]:
    """tables.limits.tile_advice.of_cases."""
    nodes = {graph: cost.content.nodes or [] for graph, cost in evidence.costs.items() if cost.content}
    sms = (roofs.gpu_in_use(evidence.environment.content) or roofs.NO_GPU).sm_count
    sm_count = sms if isinstance(sms, int) else None  # None where the probe could not tell
    return tile_advice.of_cases(evidence.latency, evidence.profiles, nodes, sm_count)


def _builds(engines: Iterable[Engine]) -> pd.DataFrame:
    """KEY and the options of each engine."""
    rows = [
        {"machine": engine.machine, **dataclasses.asdict(engine.case), "options": engine.build.content.options}
        for engine in engines
        if engine.build.content is not None
    ]
    return records.frame_of(rows, [*records.KEY, "options"])
