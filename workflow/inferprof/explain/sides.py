"""One side of a comparison: what of a capture takes time, in pieces that add up, and on what terms it was made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pandas as pd

from inferprof import registry
from inferprof.explain.foreign import Foreign
from inferprof.explain.parts import parts_of
from inferprof.readers import trtexec_bound
from inferprof.readers.kind import WHOLE
from inferprof.tables.aligned import Piece
from inferprof.tables.nodes import graph_nodes, layer_times, providers, torch_kernels, trt_join
from inferprof.tables.nodes.graph_nodes import Node
from inferprof.tables.nodes.kernel_formats import conversion, conversion_of, is_region
from inferprof.tables.nodes.trt_engine import Layer
from inferprof.tables.records import rows_of
from inferprof.tables.schema import EVENT
from inferprof.tables.trace import iteration_choice, kernel_compare, one_iteration
from inferprof.tables.trace.kernel_class import classify, own_name
from inferprof.tables.trace.kernel_compare import ITERATION
from inferprof.tables.trace.timeline import OPERATOR, PATH_SEPARATOR

MOSTLY: Final = 0.5
"""Ours: kernels are compared by ONNX node where at least half of their time has one; and what is called several
numbers of times is not the same work where it takes more than half of what both take."""
GRAPH: Final = "graph"
"""The kind of a CUDA graph that was traced as a whole."""
COUNTED: Final = "launches that were counted one by one"
Nodes = Mapping[str, Node]


@dataclass(frozen=True)
class Side:
    """What one side takes: its pieces, and what else its total is made of, ns by name; `of`: what the total is of.

    end_to_end: of an inference, where other than the total and known. shapes: of the inputs, where known.
    calls: of a sum over a whole capture, of which nothing tells how many inferences it holds: how many launches of
    each kernel, or calls of each operator; else empty.
    """

    case: Foreign
    pieces: list[Piece]
    rest: Mapping[str, float]
    of: str
    end_to_end: float | None = None
    shapes: tuple[tuple[int, ...], ...] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    calls: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Its pieces and the rest, ns."""
        return sum(self.times().values())

    def times(self) -> dict[str, float]:
        """What all pieces of a name take, and the rest, ns."""
        summed: dict[str, float] = {}
        for name, ns in [*((piece.name, piece.ns) for piece in self.pieces), *self.rest.items()]:
            summed[name] = summed.get(name, 0.0) + ns
        return summed

    @property
    def each(self) -> float:
        """What one call takes, of all, ns."""
        return self.total / sum(self.calls.values())


def as_wholes(a: Side, b: Side) -> tuple[Side, Side]:
    """Both as sums over their captures, where only one of them has iterations and the other tells its sums, too."""
    if bool(a.calls) == bool(b.calls):
        return a, b
    return _as_whole(a), _as_whole(b)


def _as_whole(side: Side) -> Side:
    capture = next((capture.of_range(WHOLE) for capture in side.case.captures if capture.of_range), None)
    if side.calls or capture is None or capture.total is None:
        return side
    return Side(side.case, [], capture.parts, capture.total.of, calls=capture.calls)


def calls_differ(a: Side, b: Side) -> bool:
    """Whether the sums are of several numbers of calls: of what both call, by time mostly another number of times."""
    if not a.calls or not b.calls:
        return False
    times = a.times(), b.times()
    both = [name for name in times[0] if name in times[1] and name in a.calls and name in b.calls]
    if not both:
        return sum(a.calls.values()) != sum(b.calls.values())
    took = {name: times[0][name] + times[1][name] for name in both}
    differ = sum(ns for name, ns in took.items() if a.calls[name] != b.calls[name])
    return differ > MOSTLY * sum(took.values())


def basis(case: Foreign, graph: Nodes) -> dict[str, Callable[[], Side]]:
    """What a case can be compared by, the most telling first."""
    made: dict[str, Callable[[], Side]] = {}
    rows = case.rows
    timed = rows["level"].eq("layer") & rows["metric"].eq("duration_mean")
    tracers = [tool for tool in (*registry.tracers(), *registry.joining("layer")) if rows["tool"].eq(tool).any()]
    if case.choice is not None or any(_iterates(rows[rows["tool"].eq(tool)]) for tool in tracers):
        made["the kernels of a trace"] = lambda: _traced(case, tracers)
    if timed.any():
        made["the layers of an engine"] = lambda: _layers(case, graph)
    if rows["tool"].isin(registry.counters()).any() and rows["launch"].notna().any():
        made[COUNTED] = lambda: _counted(case)
    if case.captures[0].tool in registry.sessions() and not made:
        made["the nodes of a session"] = lambda: _nodes(case)
    if tracers and not made:
        made["sums by kernel"] = lambda: _summed(case)
    if parts_of(case):
        made["the parts of an inference"] = lambda: _parts(case)
    return made


def _iterates(rows: pd.DataFrame) -> bool:
    return bool((rows["level"].eq("range") & rows["name"].eq(ITERATION)).any())


# --- traces ----------------------------------------------------------------------------------------------------


def _traced(case: Foreign, tracers: list[str]) -> Side:
    """Kernels by ONNX node, or in ranges or in order; the rest is what the iteration spends without kernels."""
    by_tool = {tool: case.rows[case.rows["tool"].eq(tool)] for tool in tracers}
    pieces = next((owned for rows in by_tool.values() if (owned := list(_owned(rows)))), None)
    rows = by_tool[tracers[0]]
    pieces = pieces or [*_ranged(_within_torch(case, rows)), *_whole_graphs(rows)]
    of, whole, parts = parts_of(case) or ("an iteration's kernels", 0.0, {})
    rest = {name: ns for name, ns in parts.items() if name != "kernels"}
    if whole:
        rest["of kernels that run at once"] = parts["kernels"] - sum(piece.ns for piece in pieces)
    settings = {
        "CUDA graph": "yes" if rows["name"].astype(str).str.contains("GraphLaunch").any() else "no",
        "traced by": rows["tool"].iloc[0],
        "CUDA graphs traced": "as a whole" if any(piece.kind == GRAPH for piece in pieces) else "kernel by kernel",
    }
    return Side(case, pieces, rest, of, settings=settings)


def _within_torch(case: Foreign, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with torch's modules and operators as ranges, where the trace has them and ranges tell iterations."""
    capture = next((capture for capture in case.captures if capture.within), None)
    if capture is None or capture.within is None or case.choice is None or case.choice.by in (None, "period"):
        return rows
    timeline, _ = iteration_choice.choose(capture.within(), case.choice.by)
    torch = torch_kernels.tidy(timeline, capture.tool)
    return pd.concat([torch, rows[rows["level"].eq(EVENT)]], ignore_index=True)


def _owned(rows: pd.DataFrame) -> Iterator[Piece]:
    """Kernels whose ONNX nodes are known for most of their time; none otherwise."""
    if not rows["tool"].isin(registry.joining("layer")).any():
        return
    table = layer_times.kernels(rows)
    if not len(table) or table.loc[table["node"].notna(), "duration_ns"].sum() < MOSTLY * table["duration_ns"].sum():
        return
    for row in rows_of(table):
        node = row["node"] if isinstance(row["node"], str) else ""
        yield _kernel(str(row["kernel"]), float(row["duration_ns"]), keys=frozenset([node] if node else []))


def _kernel(name: str, ns: float, keys: frozenset[str] = frozenset(), place: str = "") -> Piece:
    kind = classify(name)
    converts = conversion(name, None) is not None
    return Piece(name, ns, kind.kernel_class, keys, place, kind.dtype or "", converts=converts)


def _ranged(rows: pd.DataFrame) -> Iterator[Piece]:
    """Kernels by the range inside of the iteration that they were launched in; those in none in their order."""
    totals = kernel_compare.of_iterations(rows[rows["metric"].eq("duration_total")])
    count = kernel_compare.iterations(rows) or 1
    place = totals["range"].map(_inside, na_action="ignore").fillna("")
    table = pd.DataFrame({"place": place, "name": totals["name"], "ns": totals["value"].astype(float) / count})
    outside: dict[str, float] = {}
    for row in rows_of(table.groupby(["place", "name"], sort=False)["ns"].sum().reset_index()):
        if row["place"]:
            yield _kernel(str(row["name"]), float(row["ns"]), place=str(row["place"]))
        else:
            outside[str(row["name"])] = float(row["ns"])
    yield from _in_order(outside, rows)


def _inside(path: str) -> str:
    """`layer > attention > aten::linear` of `iteration > layer > attention > op:aten::linear > op:aten::addmm`."""
    parts = path.split(PATH_SEPARATOR)
    inside = parts[parts.index(ITERATION) + 1 :] if ITERATION in parts else []
    operators = [part.removeprefix(OPERATOR) for part in inside if part.startswith(OPERATOR)]
    return PATH_SEPARATOR.join([*(part for part in inside if not part.startswith(OPERATOR)), *operators[:1]])


def _in_order(ns: Mapping[str, float], rows: pd.DataFrame) -> Iterator[Piece]:
    """What each kernel takes in an iteration, in shares of its launches, in the order of the median iteration."""
    launched = one_iteration.of_case(rows)
    names = [str(name) for name in launched.loc[launched["kind"].eq("kernel"), "name"] if str(name) in ns]
    counts = pd.Series(names, dtype="str").value_counts().to_dict()
    yield from (_kernel(name, ns[name] / counts[name]) for name in names)
    yield from (_kernel(name, took) for name, took in ns.items() if name not in counts)


def _whole_graphs(rows: pd.DataFrame) -> Iterator[Piece]:
    graphs = kernel_compare.of_iterations(rows[rows["metric"].eq("duration_total")], "graph")
    count = kernel_compare.iterations(rows) or 1
    for name, ns in graphs.groupby("name", sort=False)["value"].sum().items():
        yield Piece(str(name), float(ns) / count, GRAPH)


def _summed(case: Foreign) -> Side:
    """Sums by kernel, of a capture that tells no order and no iterations."""
    rows = case.rows[case.rows["level"].eq("kernel") & case.rows["metric"].eq("duration_total")]
    pieces = [_kernel(str(name), float(ns)) for name, ns in rows.groupby("name")["value"].sum().items()]
    calls = {str(name): float(count) for name, count in rows.groupby("name")["instances"].sum().items()}
    settings = {"launches": f"{sum(calls.values()):,.0f}"}
    return Side(case, pieces, {}, "all kernels of the capture", settings=settings, calls=calls)


# --- engines and sessions --------------------------------------------------------------------------------------


def _layers(case: Foreign, graph: Nodes) -> Side:
    """The layers of an engine in their order, each with the nodes that it was made of."""
    rows = case.rows
    described = {layer.name: layer for layer in layer_times.described(rows)}
    timed = rows[rows["level"].eq("layer") & rows["metric"].eq("duration_mean")]
    tool = timed["tool"].iloc[0]
    own = timed[timed["tool"].eq(tool)]
    layers = [described.get(str(name), Layer(str(name))) for name in own["name"]]
    claimed = frozenset(name for layer in layers if not is_region(layer) for name in _names(layer, graph))
    pieces = [
        _layer(layer, float(ns), graph, claimed) for layer, ns in zip(layers, own["value"].astype(float), strict=True)
    ]
    inferences = (capture.total for capture in case.captures if capture.tool == trtexec_bound.TOOL)
    end_to_end = next((total.ns for total in inferences if total is not None), None)
    shapes = _input_shapes(list(described.values()))
    return Side(case, pieces, {}, "the layers, timed one by one", end_to_end, shapes)


def _layer(layer: Layer, ns: float, graph: Nodes, claimed: frozenset[str]) -> Piece:
    converts = conversion_of(layer)
    names = _names(layer, graph)
    keys = frozenset(names) | (_between(layer, graph) - claimed if is_region(layer) else frozenset())
    if converts and (target := trt_join.reformats(layer.name)):
        keys = frozenset(f"reformat of {name}" for name in _names(Layer(target), graph) or [target])
    kinds = [graph_nodes.work_of(node.op_type) for node in trt_join.nodes_of(layer, graph)]
    work = next((kind for kind in kinds if kind in graph_nodes.MARKED), next(iter(kinds), "other"))
    kind = converts or (str(work) if work != "other" else str(classify(layer.tactic or layer.name).kernel_class))
    formats = ", ".join(sorted({tensor.dtype for tensor in layer.outputs if tensor.dtype}))
    shape = "x".join(map(str, layer.outputs[0].dims[1:])) if layer.outputs else ""
    return Piece(layer.name, ns, kind, keys, "", formats, shape, converts is not None)


def _names(layer: Layer, graph: Nodes) -> list[str]:
    return [node.name for node in trt_join.nodes_of(layer, graph)]


def _between(layer: Layer, graph: Nodes) -> frozenset[str]:
    """The first and last node of a region, which its name tells, and with the graph those between."""
    ends = trt_join.ends_of(layer.name)
    order = list(graph)
    places = [order.index(end) for end in ends if end in graph]
    inside = order[min(places) : max(places) + 1] if len(places) > 1 else []
    return frozenset((*ends, *inside))


def _input_shapes(layers: list[Layer]) -> tuple[tuple[int, ...], ...] | None:
    """Of what layers read and none writes; None where that is not known, or not fixed."""
    written = {tensor.name for layer in layers for tensor in layer.outputs}
    inputs = {t.name: t.dims for layer in layers for t in layer.inputs if t.name not in written and t.dims}
    if not inputs or any(size < 0 for dims in inputs.values() for size in dims):
        return None
    return tuple(sorted(inputs.values()))


def _counted(case: Foreign) -> Side:
    """Launches by kernel, and which of its launches."""
    rows = case.rows[case.rows["tool"].isin(registry.counters()) & case.rows["metric"].eq("duration_total")]
    launches = rows[rows["launch"].notna()].sort_values("launch", kind="stable")
    number = launches.groupby("name").cumcount()
    pieces = [
        _kernel(str(name), float(ns), frozenset([f"{own_name(str(name))}#{nth}"]))
        for name, ns, nth in zip(launches["name"], launches["value"], number, strict=True)
    ]
    return Side(case, pieces, {}, "the launches, each alone")


def _nodes(case: Foreign) -> Side:
    """The nodes of a run, and what is between them."""
    nodes = providers.per_run(case.rows)
    pieces = [
        Piece(str(row["name"]), float(row["duration"]), str(row["op_type"]), frozenset([str(row["name"])]))
        for row in rows_of(nodes)
    ]
    parts = parts_of(case)
    between = parts[1] - sum(piece.ns for piece in pieces) if parts else 0.0
    return Side(case, pieces, {"between the nodes": between}, "a run")


def _parts(case: Foreign) -> Side:
    of, _, parts = parts_of(case) or ("", 0.0, {})
    calls = next((capture.calls for capture in case.captures if capture.parts), {})
    return Side(case, [], parts, of, calls=calls)
