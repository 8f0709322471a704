"""Captures of one program as a case: rows, iterations, what the checks of a study say of them, and its graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from msgspec import structs

from inferprof import registry
from inferprof.case import Case
from inferprof.diagnosis import frames, ranks, run, verdict
from inferprof.diagnosis.times import on_several_gpus
from inferprof.documents.diagnosed import Verdict
from inferprof.errors import UserError
from inferprof.explain import tf32
from inferprof.findings import Answer, Frames, Total
from inferprof.readers import launch_configs
from inferprof.readers.kind import Capture, Lack
from inferprof.tables import records, schema
from inferprof.tables.limits import waterfall
from inferprof.tables.trace import iteration_choice, one_iteration
from inferprof.tables.trace.events import tidy
from inferprof.tables.trace.iteration_choice import Choice
from inferprof.tables.trace.kernel_compare import ITERATION
from inferprof.words import counted

if TYPE_CHECKING:
    from inferprof.tables.nodes.attribution import OwnerLevel

MACHINE: Final = "foreign"
STUDY: Final = "explain"
UNLIKE: Final = 3.0
"""Ours: where one iteration takes so many times as long as another, their mean is the time of none."""
UNKNOWN: Final = "unknown"
"""In place of a model, a number format and a backend that no file tells."""


@dataclass(frozen=True, eq=False)
class Foreign:
    """A case that others captured, and what follows. `names`: of its files."""

    names: Sequence[str]
    case: Case
    captures: Sequence[Capture]
    rows: pd.DataFrame
    choice: Choice | None
    frames: Frames
    answers: Sequence[Answer]
    verdict: Verdict
    total: Total | None
    graph: Sequence[str] = ()
    """What the ONNX file of it says, in lines."""
    watched: Sequence[str] = ()
    """What `watch` ran, and what that cost, in lines."""

    @property
    def lacks(self) -> list[Lack]:
        """What none of the files tells, each once."""
        counters = registry.counters()
        given = {"timeline" for capture in self.captures if capture.timeline is not None}
        given |= {"counters" for capture in self.captures if capture.tool in counters}
        every = dict.fromkeys(lack for capture in self.captures for lack in capture.lacks)
        return [lack for lack in every if lack.told_by not in given]

    @property
    def model(self) -> str | None:
        """The file of the model that it names."""
        return next((capture.model for capture in self.captures if capture.model), None)

    @property
    def failure(self) -> str | None:
        """Why there is nothing to tell."""
        return next((capture.failure for capture in self.captures if capture.failure), None)


def of(
    names: Sequence[str],
    captures: Sequence[Capture],
    case: Case,
    iteration: str | None = None,
    model: Path | None = None,
) -> Foreign:
    """A case out of its captures. Raises UserError for a range that is asked for and not there."""
    if (owned := _owned(captures, model)) is not None:
        captures = [*captures, owned]
    if iteration is not None:
        captures = _of_iteration(names, captures, iteration)
    choice = None
    parts = []
    for capture in captures:
        if capture.timeline is not None:
            timeline, choice = iteration_choice.choose(capture.timeline, iteration)
            parts += [tidy(timeline, capture.tool), launch_configs.rows(timeline, capture.tool)]
        if capture.rows is not None:
            parts.append(capture.rows)
    empty = pd.DataFrame(columns=list(schema.COLUMNS)).astype(schema.COLUMNS)
    parts = [part for part in parts if len(part)]
    rows = schema.of_case(pd.concat(parts, ignore_index=True) if parts else empty, MACHINE, case)
    own = _of_means(frames.of_tables(MACHINE, case, _no_peers(case), schema.shared(one_iteration.without(rows))))
    read = [answer for capture in captures for answer in capture.answers]
    checked = {answer.check for answer in read}  # by the file's reader, of the same rows: once is enough
    given = [*(answer for answer in (run.answers(own) if len(rows) else []) if answer.check not in checked), *read]
    if (narrower := tf32.answer(own, captures)) is not None:
        given.append(narrower)
    if choice is not None and choice.apart >= UNLIKE:
        given = [_without_gains(answer) for answer in given]
    total = own.total or next((capture.total for capture in captures if capture.total), None)
    times, work = (verdict.times_of(own) if own.total else {}), ranks.own_work(own)
    judged = verdict.judge(given, total, times, work=work)
    return Foreign(names, case, captures, rows, choice, own, given, judged, total)


def _without_gains(answer: Answer) -> Answer:
    """The same, where a gain would be of the mean of iterations that none of them is like."""
    findings = tuple(structs.replace(finding, gain=None) for finding in answer.findings)
    return structs.replace(answer, findings=findings, gain=None)


def _of_iteration(names: Sequence[str], captures: Sequence[Capture], name: str) -> list[Capture]:
    """The captures, of the ranges that are asked for. Raises UserError where none of them has any."""
    if not any(capture.timeline is not None or capture.of_range for capture in captures):
        raise UserError(
            f"--iteration {name}: {', '.join(names)} holds no ranges to choose from (a trace has them): leave it out"
        )
    return [capture.of_range(name) if capture.of_range else capture for capture in captures]


def _of_means(own: Frames) -> Frames:
    """With shares of an iteration's mean, which the parts beside them add up to, and not of its median; of several
    GPUs that of the busiest, which those parts are of."""
    seen = waterfall.of_ranges(own.timeline).get(ITERATION, {}) if own.tool else {}
    if "gpu_busy" not in seen or own.total is None:
        return own
    total = structs.replace(own.total, ns=seen["gpu_busy"] + seen["gpu_idle"])
    if on_several_gpus(own):
        total = structs.replace(total, of=f"{total.of} on GPU {busiest(own)}")
    return dataclasses.replace(own, total=total)


def busiest(own: Frames) -> int:
    """The GPU that the timeline is of."""
    return int(own.timeline["device"].dropna().iloc[0])


def _no_peers(case: Case) -> Any:
    """Nothing was measured without a profiler, of this case or any other."""
    planned = pd.DataFrame([{"machine": MACHINE, **dataclasses.asdict(case), "outcome": "run", "reason": ""}])
    return frames.peers_of(records.read(Path("/"), planned))


def case_of(captures: Sequence[Capture], name: str) -> Case:
    """What a report calls the case: the file, and the runtime where its captures name one."""
    backend = next((capture.runtime for capture in captures if capture.runtime), UNKNOWN)
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name).strip("._")[:80]
    return Case(plain or STUDY, UNKNOWN, backend, "default", "b1")


SHOWN: Final = 3
LONGEST_NAME: Final = 60
_LEVELS: Final[dict[str, OwnerLevel]] = {"layer": "layer", "ONNX node": "op"}


def _owned(captures: Sequence[Capture], model: Path | None) -> Capture | None:
    """The kernels of a trace of TensorRT by layer and, with the model, by ONNX node; None where nothing tells them.

    The layers' files and the trace may be of two engines: then that is what it says.
    """
    from inferprof.tables.nodes import graph_nodes, trt_join, trt_kernels, trt_layers

    files = [capture.rows for capture in captures if capture.rows is not None]
    layers = next((layers for rows in files if (layers := trt_layers.layers_of(rows))), ())
    timeline = next((capture.timeline for capture in captures if capture.timeline is not None), None)
    if timeline is None or not (layers or any(trt_join.ENQUEUE in path for path in timeline.paths)):
        return None
    tool = registry.joining("layer")[0]
    graph = graph_nodes.of_file(model) if model else ()
    try:
        rows = trt_kernels.tidy(timeline, layers, graph, tool)
    except UserError as error:
        return Capture(tool, (), notes=[f"layers and trace do not fit: {error}"])
    return Capture(tool, (), rows=rows, notes=list(_by_owner(trt_kernels.attributed(rows))))


def _by_owner(attributed: pd.DataFrame) -> Iterator[str]:
    """The owners of most of the kernels' time, and how much has one."""
    from inferprof.tables.nodes.attribution import by_owner
    from inferprof.tables.records import rows_of

    for title, level in _LEVELS.items():
        table = by_owner(attributed, level).dropna(subset=["owner"])
        if len(table):
            listed = "; ".join(
                f"{str(row['owner'])[:LONGEST_NAME]} {100 * row['share']:.1f} %" for row in rows_of(table.head(SHOWN))
            )
            yield f"kernel time by {title} ({100 * table['share'].sum():.0f} % has one): {listed}"


def described(model: Path) -> list[str]:
    """What the graph computes in, by multiply-accumulates, and the first advice about it. Raises UserError where it
    can't be read."""
    from inferprof.model import audit

    content = audit.audit(model, None, None)
    macs = ", ".join(f"{dtype} {share:.1%}" for dtype, share in content["macs_share"].items()) or "not known"
    weights = ", ".join(f"{dtype} {size / 2**20:.2f} MiB" for dtype, size in content["weight_bytes"].items())
    marked = f"{counted(content['quantizers'], 'quantizer')}, {counted(content['casts'], 'cast')}"
    return [f"{model.name}: multiply-accumulates {macs}; weights {weights or 'none'}; {marked}"]


def doubt(model: Path, rows: pd.DataFrame) -> list[str]:
    """A line where a profile of ONNX Runtime has no node of the graph, so that it may be of another; else none.

    A fusion puts its own name behind a node's, and ONNX Runtime calls a node without a name by operator and number.
    A part of the graph that a provider compiles is called after the provider: then nothing can be said.
    """
    from inferprof.model import onnx_graph, onnx_reader

    by_provider = rows["level"].eq("op") & rows["owner"].str.contains("ExecutionProvider", na=False)
    ran = rows.loc[by_provider, "name"].dropna().unique()
    nodes = list(onnx_graph.all_nodes(onnx_reader.outline(model).graph))
    starts = tuple(f"{node.name}{end}" for node in nodes if node.name for end in ("/", "_"))
    names = {node.name for node in nodes}
    types = tuple(f"{node.op_type}_" for node in nodes if not node.name)
    plain = [name.removeprefix("fused ") for name in ran]
    if not plain or any(
        name in names or name.startswith((*starts, *types)) or "ExecutionProvider_" in name for name in plain
    ):
        return []
    return [f"none of the {counted(len(plain), 'node')} that ran is in {model.name}: is it the graph that ran?"]
