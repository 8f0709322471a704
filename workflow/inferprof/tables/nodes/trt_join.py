"""Which layer of a TensorRT engine, and which ONNX node, each kernel belongs to.

TensorRT opens an NVTX range around an inference (`ExecutionContext::enqueue`), inside of it one per layer, and inside
of Myelin's layers Myelin's own. A launch is the layer's in whose range it was called; in a CUDA graph, in whose range
its node was made. Layers that have no range of their own (those inside of a region of Myelin, and those of a graph
that was captured unseen) are found by the kernels' names, which begin with the tactics that the inspector tells.

Of a layer's nodes a kernel is one's only where nodes.graph_nodes says so, else it is the layer's alone. Nothing is
spread over several.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd

from inferprof.errors import UserError
from inferprof.tables.nodes.graph_nodes import NOBODY, TIED, Match, Node, align, of_names
from inferprof.tables.nodes.trt_engine import Layer
from inferprof.tables.nodes.trt_layers import EXAMPLES, MISSING_SHARE
from inferprof.tables.trace.intervals import Times, holding
from inferprof.tables.trace.timeline import KERNEL, NO_CALL, PATH_SEPARATOR, Timeline

ENQUEUE: Final = "ExecutionContext::enqueue"
TACTIC: Final = 0.95
"""Confidence of a layer without a range, with whose tactic the kernel's name begins."""
OWNER_COLUMNS: Final = ("layer", "layer_confidence", "node", "node_confidence")

_BY_FUSION, _FUSED = "_by_fusion_tactic", "_fused"
_REGION: Final = "{ForeignNode["
_REFORMAT: Final = "Reformatting CopyNode"
_OF_REFORMAT: Final = re.compile(rf"{_REFORMAT} for (?:Input|Output) Tensor \d+ (?:to|from) (.+)")
_ENDS: Final = re.compile(r"\{ForeignNode\[(.+)\]\}")
_NOT_A_NODE: Final = re.compile(r"^\(Unnamed Layer|^\{|^\[|::|_output_\d|^ONNXTRT_")
"""Regions, layers of TensorRT's own, and constants by the names that PyTorch's exporter and TensorRT give them."""
_BETWEEN: Final = re.compile(r" \+ | \|\| |, ")
_POINTWISE: Final = re.compile(r"PWN\(|\)")


# --- launches --------------------------------------------------------------------------------------------------


def launches(timeline: Timeline) -> pd.DataFrame:
    """Every GPU operation in the order of launching: op (row of timeline.ops), kernel (name; missing for copies),
    path (text) and execution: a number for all that one inference, or one launch of a CUDA graph, ran.
    """
    ops, call = timeline.ops, timeline.ops["call"].to_numpy()
    has_call = call != NO_CALL
    called = np.zeros(call.size, np.int64)
    called[has_call] = timeline.calls["start"].to_numpy()[call[has_call]]
    thread = np.zeros(call.size, np.int64)
    thread[has_call] = timeline.calls["thread"].to_numpy()[call[has_call]]
    execution = _execution(timeline, thread, called)
    frame = pd.DataFrame(
        {
            "op": np.arange(call.size),
            "kernel": [timeline.names[code] for code in ops["name"]],
            "path": [timeline.paths[code] for code in timeline.wanted_path],
            "execution": np.where(execution >= 0, execution, len(timeline.ranges) + call),
            "called": called,
            "start": ops["start"].to_numpy(),
        }
    )
    frame["kernel"] = frame["kernel"].where(ops["kind"].to_numpy() == KERNEL)
    return frame.sort_values(["execution", "called", "start"], kind="stable", ignore_index=True)


def _execution(timeline: Timeline, thread: Times, called: Times) -> Times:
    """Per operation the row of `timeline.ranges` that is the inference it was launched in; -1: in none."""
    inference = [path.rpartition(PATH_SEPARATOR)[2] == ENQUEUE for path in timeline.paths]
    ranges = timeline.ranges[np.array(inference, bool)[timeline.ranges["path"]]]
    execution = np.full(called.size, -1, np.int64)
    for tid, own in ranges.groupby("thread"):
        mine = np.flatnonzero(thread == tid)
        place = holding(own["start"].to_numpy(), own["end"].to_numpy(), called[mine])
        execution[mine] = np.where(place >= 0, own.index.to_numpy()[place], -1)
    return execution


# --- layers ----------------------------------------------------------------------------------------------------


def layer_of_path(path: str, layers: frozenset[str]) -> str | None:
    """The innermost layer that a path of ranges names: one of `layers`, else the range directly in the inference."""
    _, inference, inside = path.partition(f"{ENQUEUE}{PATH_SEPARATOR}")
    if not inference:
        return None
    names = inside.split(PATH_SEPARATOR)
    return next((name for name in reversed(names) if name in layers), names[0])


def _with_layers(frame: pd.DataFrame, layers: Sequence[Layer]) -> pd.DataFrame:
    """The launches with `layer` and `layer_confidence`: by ranges, and by tactics where those tell no known layer."""
    names = frozenset(layer.name for layer in layers)
    named = {str(path): layer_of_path(str(path), names) for path in frame["path"].unique()}
    ranged = {name for name in named.values() if name}
    _check_same_engine(ranged, names)
    layer = frame["path"].map(named)
    confidence = layer.notna().map({True: TIED, False: np.nan})
    rest = [candidate for candidate in layers if candidate.name not in ranged and candidate.tactic]
    is_described = layer.isin(names) & ~layer.fillna("").str.startswith(_REGION)
    by_tactic = pd.Series(_by_tactic(frame[~is_described], rest), dtype="object")
    layer.loc[by_tactic.index] = by_tactic
    confidence.loc[by_tactic.index] = TACTIC
    return frame.assign(layer=layer, layer_confidence=confidence)


def _check_same_engine(ranged: Iterable[str], described: frozenset[str]) -> None:
    """Refuse layers of another engine than the one whose ranges are in the trace."""
    seen = sorted(name for name in ranged if not name.startswith(_REGION))
    strange = [name for name in seen if name not in described]
    if described and len(strange) > MISSING_SHARE * len(seen):
        raise UserError(
            f"{len(strange)} of the {len(seen)} layers that the trace names are not among the {len(described)} that "
            f"are described, such as {'; '.join(strange[:EXAMPLES])}: they are of two engines, or of two builds of "
            "one; capture both in one run"
        )


def _by_tactic(frame: pd.DataFrame, layers: Sequence[Layer]) -> dict[int, str]:
    """Place in the whole frame → layer, of launches whose kernel begins with the tactic of a layer.

    Where several layers share a tactic, the launches of an execution are theirs in the engine's order, if there are
    as many of them; else they are nobody's.
    """
    candidates = {kernel: _candidates(kernel, layers) for kernel in frame["kernel"].dropna().unique()}
    layer_of: dict[int, str] = {}
    for (_, kernel), rows in frame.groupby(["execution", "kernel"], sort=False):
        names = candidates[str(kernel)]
        if len(names) == 1:
            layer_of.update(dict.fromkeys(rows.index, names[0]))
        elif len(names) == len(rows):
            layer_of.update(zip(rows.index, names, strict=True))
    return layer_of


def _candidates(kernel: str, layers: Sequence[Layer]) -> list[str]:
    """The layers with the longest tactic that the kernel's name begins with.

    Of a product that Myelin fused with what follows, the tactic is that of the plain one and says so at its end; the
    kernel says so in a word of its own (`…_fused20_kernel`).
    """
    named = [(layer.name, *_split(layer.tactic or "")) for layer in layers]
    fitting = [(name, tactic, fused) for name, tactic, fused in named if tactic and kernel.startswith(tactic)]
    longest = max((len(tactic) for _, tactic, _ in fitting), default=0)
    alike = [(name, fused) for name, tactic, fused in fitting if len(tactic) == longest]
    same = [name for name, fused in alike if fused == (_FUSED in kernel)]
    return same or [name for name, _ in alike]


def _split(tactic: str) -> tuple[str, bool]:
    return tactic.removesuffix(_BY_FUSION), tactic.endswith(_BY_FUSION)


# --- nodes -----------------------------------------------------------------------------------------------------


def nodes_of(layer: Layer, graph: Mapping[str, Node]) -> tuple[Node, ...]:
    """The nodes that a layer was made of: by its metadata, else by its name (`Conv_0 + PWN(Relu_1) || Conv_3`).

    With a graph only nodes that are in it count. Without, the parts of a name may be weights too: those that tell a
    type count, where none does all of them.
    """
    names = layer.nodes or _parts(layer.name)
    if graph:
        return tuple(graph[name] for name in names if name in graph)
    nodes = of_names(names)
    return nodes if layer.nodes else tuple(node for node in nodes if node.op_type) or nodes


def reformats(name: str) -> str | None:
    """The layer that a reformat is in front of or behind, by its name; None for any other layer."""
    match = _OF_REFORMAT.match(name)
    return match[1] if match else None


def ends_of(name: str) -> tuple[str, ...]:
    """The first and last node of a region, by its name: `{ForeignNode[/a/Cast.../b/Div]}`."""
    match = _ENDS.search(name)
    return tuple(part for part in match[1].split("...") if part) if match else ()


def _parts(name: str) -> tuple[str, ...]:
    if name.startswith(_REFORMAT):
        return ()
    parts = _BETWEEN.split(_POINTWISE.sub("", name))
    return tuple(part for part in parts if not _NOT_A_NODE.search(part))


# --- the join --------------------------------------------------------------------------------------------------


def owners(timeline: Timeline, layers: Sequence[Layer], graph: Sequence[Node] = ()) -> pd.DataFrame:
    """OWNER_COLUMNS of each operation, in the order of timeline.ops; missing where it is nobody's.

    layers: of the engine that ran; without any, ranges alone tell them. graph: the nodes of the model, where known:
    those that no other layer claims are those of a region of Myelin whose own are not told.
    Raises UserError where the trace's ranges name other layers.
    """
    frame = _with_layers(launches(timeline), layers)
    made_of = _made_of(frame["layer"].dropna().unique(), layers, graph)
    matches: list[Match] = [NOBODY] * len(frame)
    aligned = functools.cache(align)
    kernels = frame[frame["kernel"].notna() & frame["layer"].notna()]
    for (_, name), rows in kernels.groupby(["execution", "layer"], sort=False):
        for place, match in zip(rows.index, aligned(tuple(rows["kernel"]), made_of[str(name)]), strict=True):
            matches[place] = match
    frame["node"] = [node for node, _ in matches]
    frame["node_confidence"] = [confidence for _, confidence in matches]
    both = frame[["node_confidence", "layer_confidence"]].astype(float)
    frame["node_confidence"] = both.min(axis=1).where(frame["node"].notna())
    return frame.sort_values("op", ignore_index=True)[list(OWNER_COLUMNS)]


def _made_of(names: Iterable[str], layers: Sequence[Layer], graph: Sequence[Node]) -> dict[str, tuple[Node, ...]]:
    """Layer → its nodes."""
    described = {layer.name: layer for layer in layers}
    by_name = {node.name: node for node in graph}
    made_of = {name: nodes_of(described.get(name, Layer(name)), by_name) for name in names}
    silent = [name for name, nodes in made_of.items() if name.startswith(_REGION) and not nodes]
    if len(silent) == 1:
        claimed = {node.name for nodes in made_of.values() for node in nodes}
        made_of[silent[0]] = tuple(node for node in graph if node.name not in claimed)
    return made_of
