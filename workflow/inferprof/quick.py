"""What is known of a graph within a minute: latency here, least times on GPUs, formats, what TensorRT leaves out.

Nothing is converted, and nothing is kept: a study (`make report`) compares formats and runtimes, in rounds.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from inferprof import documents, outcomes, registry, run_request, stats, workload
from inferprof.backends import refusals, tensorrt_partition
from inferprof.case import BATCH, Case, Shape, Variant
from inferprof.errors import CaseFailed, ToolError, UserError
from inferprof.machine import hardware, peaks
from inferprof.measure import iterations, timing
from inferprof.model import audit, cost, model_spec, onnx_file, onnx_inputs
from inferprof.model.model_spec import ModelSpec
from inferprof.model.onnx_inputs import OPEN_SIZE, UNNAMED
from inferprof.report.sections.gpu_floors import SHOWN
from inferprof.tables.limits import gpu_floors
from inferprof.units import NS_PER_MS, NS_PER_US
from inferprof.words import counted, figure, some

OWN: Final = "own"
"""In place of a number format: that of the graph, whatever it is."""
BUDGET_S: Final = 1.0
PROFILED: Final = 3
"""Iterations under ONNX Runtime's profile."""
PROFILE_S: Final = 10.0
"""Ours: what takes longer than that to profile does not fit into the minute."""
NAMED: Final = 4
BACKENDS: Final = ("ort_cuda", "ort_cpu")


@dataclass(frozen=True)
class Asked:
    """A graph at a shape, which sizes of it are a guess, and which were given."""

    onnx: Path
    spec: ModelSpec
    shape: Shape
    assumed: tuple[str, ...]
    given: Shape
    ran: dict[str, bool] = field(default_factory=dict)
    """Runtime → whether the graph ran in it, as far as the answer has tried it."""

    @property
    def exit_code(self) -> int:
        """FAILED where the graph was run and no runtime could; 0 also where all of them refused it."""
        return outcomes.FAILED if self.ran and not any(self.ran.values()) else 0


def asked(onnx: Path, label: str | None) -> Asked:
    """The graph at a shape, or at a batch of 1. Raises UserError for a file or a shape that is none of it."""
    if onnx.suffix != ".onnx":
        raise UserError(
            f"quick answers about an ONNX file (make quick MODEL=path/to/model.onnx), and got {str(onnx)!r}"
        )
    spec = _spec(onnx)
    given = Shape.parse(label or "b1")
    if not spec.has(given):
        spec.at(given)
    open_sizes = {symbol: OPEN_SIZE for symbol in spec.unsized if symbol not in given.as_dict()}
    follow = onnx_inputs.implied(onnx, {**open_sizes, **given.as_dict()})
    open_sizes |= {symbol: size for symbol, size in follow.items() if symbol in open_sizes}
    shape = Shape((*given.sizes, *open_sizes.items()))
    return Asked(onnx, spec, spec.at(shape), tuple(symbol for symbol in open_sizes if symbol not in follow), given)


def _spec(onnx: Path) -> ModelSpec:
    """By the description beside the file where there is one, else by the file, with axes that have no name."""
    described = onnx.with_suffix(".yaml")
    if described.is_file():
        spec = model_spec.load(described)
        if spec.onnx_path is not None and spec.onnx_path.resolve() == onnx.resolve():
            onnx_file.check_description(spec, onnx)
            return spec
    return model_spec.of_onnx(onnx, open_axes=True)


def answer(graph: Asked) -> Iterator[str]:
    """The answer, part by part, each as soon as it is known."""
    guess = f" ({_assumed(graph)}; --shape says otherwise)" if graph.assumed else ""
    by = f", described by {graph.spec.path}" if graph.spec.path != graph.onnx else ""
    yield f"{graph.onnx}{by} at {graph.shape}{guess}"
    yield "\n".join(_latencies(graph))
    for make in (_least_times, _formats, _partition):
        yield _part(make, graph)


def _assumed(graph: Asked) -> str:
    """The sizes that are a guess; of what the file gives no name, the axes that its symbol stands for here."""
    unnamed = [symbol for symbol in graph.assumed if symbol.endswith(UNNAMED)]
    axes: dict[str, list[str]] = {symbol: [] for symbol in unnamed}
    for item in graph.spec.inputs:
        for axis, dim in enumerate(item.dims):
            if dim in axes:
                axes[str(dim)].append(f"axis {axis} of {item.name}")
    named = [symbol for symbol in graph.assumed if symbol not in axes]
    said = [f"{', '.join(named)} assumed"] if named else []
    said += [f"{symbol}: {some(where)}, without a name in the file, assumed" for symbol, where in axes.items()]
    return "; ".join(said)


def _part(make: Callable[[Asked], str], graph: Asked) -> str:
    """A part of the answer; where it fails that is said in its place, and the rest of the answer follows."""
    try:
        with outcomes.stage("quick"):
            return make(graph)
    except (CaseFailed, ToolError) as error:
        return f"not known, because that failed: {error}"


def _formats(graph: Asked) -> str:
    return audit.render(audit.audit(graph.onnx, None, graph.shape, graph.spec))


def _latencies(graph: Asked) -> Iterator[str]:
    """The median of end_to_end in each runtime that this machine has for it."""
    machine = hardware.detect()
    yield f"Latency here ({machine.slug}), end to end"
    for name in BACKENDS:
        backend = registry.backends()[name]
        case = Case(graph.spec.name, OWN, name, "default", graph.shape.label)
        if reason := refusals.of(name, backend.refuses, case, machine):
            yield f"  {backend.title:20}{reason}"
            continue
        protocol = timing.Protocol(budget_s=BUDGET_S, first_pass=True)
        request = run_request.RunRequest(case, graph.onnx, graph.spec, Variant(), machine.slug, protocol=protocol)
        record = workload.run(request)
        ran = graph.ran[name] = record["status"] == "ok"
        said = _latency(graph, record) if ran else f"failed at {record['stage']}: {record['reason']}"
        yield f"  {backend.title:20}{said}"
        if not ran:
            yield from _guessed(graph)
        if ran and backend.where == "cpu":
            yield f"  {'of its operators':20}{_operators(request, record)}"


def _guessed(graph: Asked) -> Iterator[str]:
    """What of the inputs was a guess, where that may be why a graph does not run."""
    if graph.spec.path != graph.onnx:
        return
    if graph.assumed:
        symbols = [symbol for symbol in graph.given.as_dict() if symbol != BATCH]
        sizes = "".join([f"{symbol}{graph.given.as_dict()[symbol]}" for symbol in symbols])
        sizes += "".join(f"{symbol}N" for symbol in graph.assumed)
        yield f"  {'':20}sizes of {OPEN_SIZE} are a guess: --shape b{graph.shape.batch}_{sizes} gives others"
    described = f"{graph.onnx.with_suffix('.yaml')}, as in {graph.spec.stub(graph.spec.unsized, graph.given)}"
    yield f"  {'':20}what it is fed with is a guess: correct that in {described}"


def _operators(request: run_request.RunRequest, record: dict[str, Any]) -> str:
    """The types of operators that take most of the time on the CPU, by ONNX Runtime's profile of a few runs."""
    from inferprof.profilers import ort_profile
    from inferprof.tables.nodes import providers

    takes_s = statistics.median(record["boundaries"]["end_to_end"]["samples_ns"]) / 1e9
    if takes_s * (iterations.WARM_UPS + PROFILED) > PROFILE_S:
        return f"not profiled here: that takes longer than {PROFILE_S:g} s"
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "profile.json"
        watched = workload.run(replace(request, profiling=run_request.Profiling(PROFILED, profile)))
        if watched["status"] != "ok":
            return f"not profiled, failed at {watched['stage']}: {watched['reason']}"
        nodes = providers.per_run(ort_profile.read(profile))
    shares = providers.by_type(nodes)
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.head(NAMED).items())


def _latency(graph: Asked, record: dict[str, Any]) -> str:
    end_to_end: dict[str, Any] = record["boundaries"]["end_to_end"]
    samples = end_to_end["samples_ns"]
    ends = stats.median_interval(samples) or (min(samples), max(samples))
    low, median, high = (ns / NS_PER_MS for ns in (ends[0], statistics.median(samples), ends[1]))
    rate = graph.shape.batch / median * 1e3
    doubt = "" if end_to_end["settled"] else "; not settled when its warm-up ended"
    return f"{median:.3g} ms ({low:.3g} to {high:.3g}, n {len(samples)}), {figure(rate)} items/s{doubt}"


def _least_times(graph: Asked) -> str:
    """A lower bound on the GPUs that are asked for most."""
    content = _cost(cost.cost(graph.onnx, graph.shape, graph.spec))
    by_name = {floor.gpu.gpu: floor for floor in gpu_floors.floors(content, peaks.every())}
    said = {title: _floor(by_name[name]) for name, title in SHOWN.items()}
    title = "Least time on GPUs in the graph's own formats"
    if all(floor.ns is None for floor in by_name.values()) and len({*said.values()}) == 1:
        return f"{title}: not known, because {next(iter(said.values()))}"
    lines = [f"{title}: a lower bound by the datasheets, not a prediction"]
    lines += [f"  {name:20}{text}" for name, text in said.items()]
    lines.append(f"  {gpu_floors.L2_IS_FREE}")
    if any(floor.limit == "compute" for floor in by_name.values()):
        lines.append(f"  {gpu_floors.WITHOUT_TF32}")
    if left_out := [node.name for node in content.nodes or () if node.product and node.flops is None]:
        lines.append(f"  without {counted(len(left_out), 'product')} whose sizes only a run tells, so at least that")
    return "\n".join(lines)


def _floor(floor: gpu_floors.Floor) -> str:
    if floor.ns is None:
        return floor.not_known
    if floor.limit is None:
        return "none: it computes nothing, and what it reads and writes fits into the L2"
    return (
        f"{figure(floor.ns / NS_PER_US)} µs, by {floor.limit}" if floor.ns >= 1 else f"below 1 ns, by {floor.limit}"
    )


def _cost(content: dict[str, Any]) -> documents.Cost:
    import msgspec

    return msgspec.convert({"status": "ok", "reason": None, **content}, documents.Cost)


def _partition(graph: Asked) -> str:
    """By the parser, which needs no GPU; else why it was not asked."""
    shapes = {item.name: item.shape(graph.shape) for item in graph.spec.inputs}
    try:
        said = tensorrt_partition.render(tensorrt_partition.partition(graph.onnx, shapes))
    except (CaseFailed, ToolError, UserError) as error:
        said = f"not asked: {error}"
    return f"What TensorRT takes of it\n{said}"
