"""Everything that a report rests on, read once from the results folder."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from inferprof.backends.torch_quantize import QUANTIZE
from inferprof.case import Case
from inferprof.errors import UserError
from inferprof.report import broken
from inferprof.report.documents import Document, Engine, Reader
from inferprof.tables import join, overhead, records, roofs, schema, summary
from inferprof.tables.limits import copies, roofline, saturation, speed_up_flags, tile_advice, waterfall
from inferprof.tables.roofs import Roofs
from inferprof.tables.trace import one_iteration

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Evidence:
    """The measurements of a study on a machine, as frames (see tables/), and the documents about its models."""

    results: Path
    study: str
    machine: str
    baseline: str | None
    outcomes: pd.DataFrame
    records: pd.DataFrame
    boundaries: pd.DataFrame
    latency: pd.DataFrame
    speed_ups: pd.DataFrame
    measured: pd.DataFrame
    stage_samples: pd.DataFrame
    stages: pd.DataFrame
    """The medians of stage_samples."""
    floors: pd.DataFrame
    """h2d and d2h against what the link needs: tables.limits.copies.floors."""
    checks: pd.DataFrame
    throughput: pd.DataFrame
    resources: pd.DataFrame
    profiles: pd.DataFrame
    """The tidy tables of all profilers."""
    overheads: pd.DataFrame
    """What the profilers cost: tables.overhead.ledger."""
    waterfall: pd.DataFrame
    """Where end_to_end goes: tables.limits.waterfall.of_cases."""
    documents: Mapping[tuple[str, str, str], Document]
    """(model, precision, convert | audit | accuracy) → document."""
    partitions: Mapping[tuple[str, str], Document]
    """(model, precision) → what TensorRT's parser takes of the graph: backends.tensorrt_partition."""
    costs: Mapping[tuple[str, str, str], Document]
    """(model, precision, shape) → what a graph computes and moves: inferprof.model.cost."""
    engines: tuple[Engine, ...]
    second_clocks: tuple[Document, ...]
    """What trtexec says of TensorRT's engines: trtexec.measure."""
    rebuilds: pd.DataFrame
    """The spread over engines that were built several times: tables.summary.rebuilds."""
    environment: Document
    bandwidth: Document
    """Of the link and the device's memory: devices.bandwidth.measure."""
    ceilings: Document
    """Of the GPU's matrix products and memory: devices.ceilings.measure."""
    roofs: Roofs
    roofline: pd.DataFrame
    """The cases on a GPU against its roofs: tables.limits.roofline.by_case."""
    saturation: pd.DataFrame
    """Where each series of batches saturates: tables.limits.saturation.of_cases."""
    tiles: pd.DataFrame
    """The products of the cases and the tiles that compute them: tables.limits.tile_advice.of_cases."""
    tile_advice: pd.DataFrame
    """The sizes at which these tiles would waste less: the same."""
    refused_profilers: Document
    """Profiler → why it could watch none of the cases."""
    diagnoses: Mapping[tuple[str, ...], Document]
    """KEY of a case → its diagnosis (diagnosis.run.document), of those that were diagnosed."""
    damaged: tuple[Document, ...]
    """The documents that are there and were left out, since they are not what inferprof writes."""
    failed: tuple[Document, ...]
    """The documents of stages that failed, captures apart: their tables have the reason."""

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
        options = zip(self.records["variant"], self.records["content"], strict=True)
        return frozenset(variant for variant, content in options if QUANTIZE in content.get("options", {}))

    @property
    def planned(self) -> list[Case]:
        """The cases that were to run."""
        return [
            Case(*row) for row in self.outcomes.loc[self.outcomes["outcome"] != "refused", records.CASE_KEY].values
        ]

    @property
    def rounds(self) -> int:
        """The most rounds that any case has."""
        return max(self.outcomes["rounds"], default=0)

    def of(self, outcome: str) -> pd.DataFrame:
        """The cases that are ok, failed, refused or broken."""
        return self.outcomes[self.outcomes["outcome"] == outcome]


def load(results: Path, study: str, machine: str, cases: pd.DataFrame, baseline: str | None) -> Evidence:
    """Read all that the results folder holds on these cases. UserError: a broken file, or another machine's cases."""
    found = records.read(results, _of_machine(cases, study, machine))
    outcomes = _explained(results, join.outcomes(cases, found))
    ok = _of_ok_cases(found, outcomes)
    boundaries = records.boundaries(ok)
    latency = summary.latency(boundaries)
    throughput = records.throughput(ok)
    stage_samples = records.stages(ok)
    stages = join.stage_medians(stage_samples)
    reader = Reader(results, outcomes)
    profiles = _profiles(reader)
    engines = tuple(reader.engines(machine))
    environment = reader.read(results / machine / "environment.json", "environment")
    bandwidth = reader.read(results / machine / "bandwidth.json", "bandwidth")
    ceilings = reader.read(results / machine / "ceilings.json", "ceilings")
    limits = roofs.of_machine(environment.content, ceilings.content, bandwidth.content)
    measured = join.measured(outcomes, latency, throughput)
    costs = reader.costs()
    at_roof = roofline.by_case(measured, ok, {graph: cost.content for graph, cost in costs.items()}, limits)
    nodes = {graph: cost.get("nodes", ()) for graph, cost in costs.items()}
    tiles, advice = tile_advice.of_cases(latency, profiles, nodes, _sms(environment))
    return Evidence(
        results=results,
        study=study,
        machine=machine,
        baseline=baseline,
        outcomes=outcomes,
        records=found,
        boundaries=boundaries,
        latency=latency,
        speed_ups=speed_up_flags.flagged(summary.speed_ups(boundaries, baseline or ""), profiles, at_roof, baseline),
        measured=measured,
        stage_samples=stage_samples,
        stages=stages,
        floors=copies.floors(stages, records.traffic(ok), bandwidth.content),
        checks=records.checks(found),
        throughput=throughput,
        resources=records.resources(ok),
        profiles=profiles,
        overheads=overhead.ledger(latency, profiles, overhead.profiled_runs(reader.profiled_runs())),
        waterfall=(parts := waterfall.of_cases(latency, stages, profiles)),
        documents=reader.of_graphs(),
        partitions=reader.partitions(),
        costs=costs,
        ceilings=ceilings,
        roofs=limits,
        roofline=at_roof,
        saturation=saturation.of_cases(boundaries, parts, at_roof),
        tiles=tiles,
        tile_advice=advice,
        engines=engines,
        second_clocks=tuple(reader.second_clocks()),
        rebuilds=summary.rebuilds(latency, _builds(engines)),
        environment=environment,
        bandwidth=bandwidth,
        refused_profilers=reader.read(results / "reports" / study / "profilers.json", "profilers"),
        diagnoses=dict(reader.diagnoses()),
        damaged=tuple(reader.damaged),
        failed=tuple(reader.failed),
    )


def _of_machine(cases: pd.DataFrame, study: str, machine: str) -> pd.DataFrame:
    if len(cases) and machine not in (known := list(dict.fromkeys(cases["machine"]))):
        raise UserError(f"the study {study} has no case of the machine {machine}; known: {', '.join(known)}")
    return cases


def _explained(results: Path, outcomes: pd.DataFrame) -> pd.DataFrame:
    """The outcomes with the end of the log as the reason of each broken case."""
    for index, row in outcomes[outcomes["outcome"] == "broken"].iterrows():
        case = Case(*(row[key] for key in records.CASE_KEY))
        outcomes.loc[index, "reason"] = broken.reason(results, row["machine"], case)
    return outcomes


def _of_ok_cases(found: pd.DataFrame, outcomes: pd.DataFrame) -> pd.DataFrame:
    """The records of the cases that are ok in every round: a failed case has no latency in the report."""
    ok = outcomes.loc[outcomes["outcome"] == "ok", records.KEY]
    return found.merge(ok, on=records.KEY, validate="many_to_one")


def _profiles(reader: Reader) -> pd.DataFrame:
    """The profilers' tables of the cases that were to run, without single events, which are many."""
    import pandas as pd

    tables = [
        one_iteration.without(schema.read_earlier(path))
        for machine, case in reader.planned()
        for path in sorted((reader.results / machine / "table").glob(f"*/{case.path}.parquet"))
    ]
    return schema.shared(pd.concat(tables)) if tables else pd.DataFrame(columns=list(schema.COLUMNS))


def _sms(environment: Document) -> int | None:
    """The streaming multiprocessors of the GPU that ran; None where the probe could not tell."""
    count = (roofs.gpu_in_use(environment.content) or {}).get("sm_count")
    return count if isinstance(count, int) else None


def _builds(engines: Iterable[Engine]) -> pd.DataFrame:
    """KEY and the options of each engine."""
    rows = [
        {"machine": one.machine, **dataclasses.asdict(one.case), "options": one.build.get("options", {})}
        for one in engines
        if one.build.content is not None
    ]
    return records.frame_of(rows, [*records.KEY, "options"])
