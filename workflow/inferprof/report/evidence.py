"""Everything that a report rests on, read once from the results folder."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferprof import registry
from inferprof.backends.torch_quantize import QUANTIZE
from inferprof.case import Case
from inferprof.errors import UserError
from inferprof.files import read_json
from inferprof.report import broken
from inferprof.tables import join, overhead, records, roofs, schema, summary
from inferprof.tables.limits import copies, roofline, speed_up_flags, tile_advice, waterfall
from inferprof.tables.roofs import Roofs
from inferprof.tables.trace import one_iteration

if TYPE_CHECKING:
    import pandas as pd

CASES_COLUMNS = [*records.KEY, "outcome", "reason"]
TORCH_ALONE = "torch alone runs {}, so that no ONNX graph is made"


@dataclass(frozen=True)
class Document:
    """A JSON file of the results: `file` is relative to the results folder; `content` is None where it is missing."""

    file: str
    content: Mapping[str, Any] | None
    why: str | None = None
    """Why nobody writes it; None where the study asks for it."""

    @property
    def lacking(self) -> str:
        """Why there is no content."""
        return self.why or f"no {self.file}"

    def get(self, key: str, default: Any = None) -> Any:
        """A top-level value."""
        return default if self.content is None else self.content.get(key, default)


@dataclass(frozen=True)
class Engine:
    """What became of one engine build."""

    machine: str
    case: Case
    build: Document

    @property
    def key(self) -> records.Key:
        """Its machine and case."""
        return (self.machine, *self.case.path.parts)


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
    tiles: pd.DataFrame
    """The products of the cases and the tiles that compute them: tables.limits.tile_advice.of_cases."""
    tile_advice: pd.DataFrame
    """The sizes at which these tiles would waste less: the same."""
    refused_profilers: Document
    """Profiler → why it could watch none of the cases."""
    diagnoses: Mapping[tuple[str, ...], Document]
    """KEY of a case → its diagnosis (diagnosis.run.document), of those that were diagnosed."""

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
    def rounds(self) -> int:
        """The most rounds that any case has."""
        return max(self.outcomes["rounds"], default=0)

    def of(self, outcome: str) -> pd.DataFrame:
        """The cases that are ok, failed, refused or broken."""
        return self.outcomes[self.outcomes["outcome"] == outcome]


def load(results: Path, study: str, machine: str, cases: pd.DataFrame, baseline: str | None) -> Evidence:
    """Read all that the results folder holds on these cases. Raises UserError for a file that can't be read."""
    found = records.read(results, cases)
    outcomes = _explained(results, join.outcomes(cases, found))
    ok = _of_ok_cases(found, outcomes)
    boundaries = records.boundaries(ok)
    latency = summary.latency(boundaries)
    throughput = records.throughput(ok)
    stage_samples = records.stages(ok)
    stages = join.stage_medians(stage_samples)
    bandwidth = _document(results, results / machine / "bandwidth.json")
    profiles = _profiles(results, outcomes)
    engines = tuple(_engines(results, machine, outcomes))
    environment = _document(results, results / machine / "environment.json")
    ceilings = _document(results, results / machine / "ceilings.json")
    limits = roofs.of_machine(environment.content, ceilings.content, bandwidth.content)
    measured = join.measured(outcomes, latency, throughput)
    costs = _costs(results, outcomes)
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
        overheads=overhead.ledger(latency, profiles, overhead.profiled_runs(_profiled_runs(results, outcomes))),
        waterfall=waterfall.of_cases(latency, stages, profiles),
        documents=_documents(results, outcomes),
        partitions=_partitions(results, outcomes),
        costs=costs,
        ceilings=ceilings,
        roofs=limits,
        roofline=at_roof,
        tiles=tiles,
        tile_advice=advice,
        engines=engines,
        second_clocks=tuple(_second_clocks(results, outcomes)),
        rebuilds=summary.rebuilds(latency, _builds(engines)),
        environment=environment,
        bandwidth=bandwidth,
        refused_profilers=_document(results, results / "reports" / study / "profilers.json"),
        diagnoses=dict(_diagnoses(results, outcomes)),
    )


def read_cases(path: Path) -> pd.DataFrame:
    """Read cases.csv; all columns are text. Raises UserError where columns are missing."""
    import pandas as pd

    try:
        cases = pd.read_csv(path, dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; the study writes it before anything runs") from None
    if lacking := [column for column in CASES_COLUMNS if column not in cases.columns]:
        raise UserError(f"{path}: lacks the columns {', '.join(lacking)}; it has {', '.join(cases.columns)}")
    return cases.astype(object)


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


def _document(results: Path, path: Path, why: str | None = None) -> Document:
    return Document(path.relative_to(results).as_posix(), read_json(path) if path.exists() else None, why)


def _documents(results: Path, outcomes: pd.DataFrame) -> dict[tuple[str, str, str], Document]:
    graphs = dict.fromkeys(zip(outcomes["model"], outcomes["precision"], strict=True))
    why = {model: _no_graph(results, outcomes[outcomes["model"] == model]) for model, _ in graphs}
    return {
        (*graph, kind): _document(results, results / "onnx" / graph[0] / f"{graph[1]}.{kind}.json", why[graph[0]])
        for graph in graphs
        for kind in ("convert", "audit", "accuracy")
    }


def _no_graph(results: Path, cases: pd.DataFrame) -> str | None:
    """Why there is no graph of the cases' model, where none was made and no runtime was to run one."""
    runs = set(cases.loc[cases["outcome"] != "refused", "backend"])
    torch = {backend.name for backend in registry.backends().values() if backend.artifact == "torch"}
    made = any((results / "onnx" / cases["model"].iloc[0]).glob("*.convert.json"))
    alone = runs and runs <= torch and not made
    return TORCH_ALONE.format("this model") if alone else None


def _partitions(results: Path, outcomes: pd.DataFrame) -> dict[tuple[str, str], Document]:
    """The partitions of the graphs of all cases that were asked for: those that an engine is built of."""
    graphs = dict.fromkeys(zip(outcomes["model"], outcomes["precision"], strict=True))
    paths = {graph: results / "onnx" / graph[0] / f"{graph[1]}.partition.json" for graph in graphs}
    return {graph: _document(results, path) for graph, path in paths.items() if path.exists()}


def _costs(results: Path, outcomes: pd.DataFrame) -> dict[tuple[str, str, str], Document]:
    """The costs of the graphs of all cases; of those on a CPU nobody asks for them."""
    graphs = dict.fromkeys(zip(outcomes["model"], outcomes["precision"], outcomes["shape"], strict=True))
    return {
        (model, precision, shape): _document(results, results / "onnx" / model / f"{precision}.{shape}.cost.json")
        for model, precision, shape in graphs
    }


def _profiles(results: Path, outcomes: pd.DataFrame) -> pd.DataFrame:
    """The profilers' tables of the cases that were to run, without single events, which are many."""
    import pandas as pd

    tables = [
        one_iteration.without(pd.read_parquet(path)).reindex(columns=list(schema.COLUMNS))  # earlier ones had fewer
        for machine, case in _planned(outcomes)
        for path in sorted((results / machine / "table").glob(f"*/{case.path}.parquet"))
    ]
    return schema.shared(pd.concat(tables)) if tables else pd.DataFrame(columns=list(schema.COLUMNS))


def _planned(outcomes: pd.DataFrame) -> list[tuple[str, Case]]:
    """(machine, case) of what was to run."""
    planned = outcomes.loc[outcomes["outcome"] != "refused", records.KEY].itertuples(index=False, name=None)
    return [(machine, Case(*names)) for machine, *names in planned]


def _sms(environment: Document) -> int | None:
    """The streaming multiprocessors of the GPU that ran; None where the probe could not tell."""
    count = (roofs.gpu_in_use(environment.content) or {}).get("sm_count")
    return count if isinstance(count, int) else None


def _profiled_runs(results: Path, outcomes: pd.DataFrame) -> Iterable[tuple[str, str, Any]]:
    """(machine, profiler, record) of the runs that were watched."""
    for machine, case in _planned(outcomes):
        folder = results / machine / "capture"
        for path in sorted(folder.glob(f"*/{case.path}.record.json")):
            yield machine, path.relative_to(folder).parts[0], read_json(path)


def _second_clocks(results: Path, outcomes: pd.DataFrame) -> Iterable[Document]:
    """The second clocks of the cases that were to run."""
    for machine, case in _planned(outcomes):
        if (path := results / machine / "trtexec" / f"{case.path}.json").exists():
            yield _document(results, path)


def _diagnoses(results: Path, outcomes: pd.DataFrame) -> Iterable[tuple[tuple[str, ...], Document]]:
    for machine, case in _planned(outcomes):
        if (path := results / machine / "diagnosis" / f"{case.path}.json").exists():
            yield (machine, *case.path.parts), _document(results, path)


def _engines(results: Path, machine: str, outcomes: pd.DataFrame) -> Iterable[Engine]:
    """The builds of this study's models and formats, of this machine and ahead of time for others."""
    pairs = set(zip(outcomes["model"], outcomes["precision"], strict=True))
    folders = [results / machine / "engine", *sorted(results.glob("aot-*/engine"))]
    for folder in folders:
        for path in sorted(folder.glob("*/*/*/*/*.build.json")):
            case = Case.from_path(path.relative_to(folder).as_posix())
            if (case.model, case.precision) in pairs:
                yield Engine(folder.parent.name, case, _document(results, path))


def _builds(engines: Iterable[Engine]) -> pd.DataFrame:
    """KEY and the options of each engine."""
    rows = [
        {"machine": one.machine, **dataclasses.asdict(one.case), "options": one.build.get("options", {})}
        for one in engines
    ]
    return records.frame_of(rows, [*records.KEY, "options"])
