"""The layers of an engine by time, with what each is made of: for a report, or for whoever asks where the time went.

Two tools tell of one case: trt_layers the time of each layer, from a run for nothing else; trt_nodes its kernels and
nodes. Times are per inference. A layer's time holds what it costs to time it (20 µs around a kernel of 1 µs), so that
the kernels' time decides where both are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from inferprof.tables.nodes import trt_kernels, trt_layers
from inferprof.tables.nodes.kernel_formats import conversion_of
from inferprof.tables.nodes.trt_engine import Layer, Tensor
from inferprof.tables.nodes.trt_join import ENQUEUE
from inferprof.tables.records import frame_of
from inferprof.tables.trace.kernel_compare import iterations

COLUMNS: Final = (
    *("layer", "layer_type", "duration_ns", "share", "kernel_ns", "launches"),
    *("nodes", "inputs", "outputs", "conversion"),
)
KERNEL_COLUMNS: Final = ("layer", "node", "kernel", "duration_ns", "launches", "confidence")
OUTSIDE: Final = "no layer's"
"""In place of a layer: kernels that ran and are nobody's."""


def inferences(frame: pd.DataFrame) -> int:
    """How many inferences a trace of TensorRT holds; of CUDA graphs, which have no such ranges, its iterations."""
    ranges = frame[(frame["level"] == "range") & (frame["name"] == ENQUEUE) & (frame["metric"] == "duration_total")]
    return int(ranges["instances"].sum()) or iterations(frame)


def kernels(frame: pd.DataFrame) -> pd.DataFrame:
    """KERNEL_COLUMNS of one case per inference, longest first; no rows where trt_nodes did not watch it.

    layer may be OUTSIDE; node may be missing; confidence is the node's where there is one, else the layer's.
    """
    count = inferences(frame)
    if not count:
        return frame_of([], list(KERNEL_COLUMNS))
    joined = trt_kernels.attributed(frame)
    layers, nodes = (joined[joined["owner_level"] == level].reset_index(drop=True) for level in ("layer", "op"))
    table = layers.assign(
        layer=layers["owner"].fillna(OUTSIDE),
        node=nodes["owner"],
        duration_ns=layers["duration_ns"] / count,
        launches=layers["instances"] / count,
        confidence=nodes["confidence"].fillna(layers["confidence"]),
    )
    longest = table.sort_values("duration_ns", ascending=False, kind="stable", ignore_index=True)
    return longest[list(KERNEL_COLUMNS)]


def described(frame: pd.DataFrame) -> tuple[Layer, ...]:
    """The layers of one case, by whichever tool describes them."""
    for _, rows in frame.groupby("tool", sort=False):
        if layers := trt_layers.layers_of(rows):
            return layers
    return ()


def of_case(frame: pd.DataFrame) -> pd.DataFrame:
    """COLUMNS, a row per layer, longest first: frame as trt_layers and trt_nodes see one case, either or both.

    duration_ns is the layer's, timed; kernel_ns and launches are its kernels'. Each is missing where nothing tells
    it; share is of all kernels' time, without a trace of all layers'. nodes are the ONNX nodes that it was made
    of, inputs and outputs the formats of its tensors, conversion what it does that no node computes. Kernels that are
    no layer's are a row of their own.
    """
    timed = frame[(frame["level"] == trt_layers.LEVEL) & (frame["metric"] == "duration_median")]
    times = timed.groupby("name", sort=False)["value"].sum()
    launched = kernels(frame).groupby("layer", sort=False)[["duration_ns", "launches"]].sum()
    layers = {layer.name: layer for layer in described(frame)}
    rows = [
        {
            **_facts(layers.get(name, Layer(name))),
            "duration_ns": times.get(name),
            "kernel_ns": launched["duration_ns"].get(name),
            "launches": launched["launches"].get(name),
        }
        for name in dict.fromkeys(map(str, [*times.index, *launched.index]))
    ]
    table = frame_of(rows, list(COLUMNS))
    decides = table["duration_ns" if launched.empty else "kernel_ns"].astype(float)
    table["share"] = decides / decides.sum()
    return table.sort_values("share", ascending=False, kind="stable", ignore_index=True)


def _facts(layer: Layer) -> dict[str, Any]:
    return {
        "layer": layer.name,
        "layer_type": layer.kind,
        "nodes": layer.nodes,
        "inputs": _formats(layer.inputs),
        "outputs": _formats(layer.outputs),
        "conversion": conversion_of(layer),
    }


def _formats(tensors: Iterable[Tensor]) -> str:
    """`fp8, fp16`: the number formats of some tensors, each once; empty where none is told."""
    return ", ".join(dict.fromkeys(tensor.dtype for tensor in tensors if tensor.dtype))


# --- which layer reads what another one wrote -------------------------------------------------------------------

GRAPH_COLUMNS: Final = ("layer", "dtype", "conversion", "share", "reads", "depth", "lane")


def graph_of(layers: Sequence[Layer], shares: Mapping[str, float]) -> pd.DataFrame:
    """GRAPH_COLUMNS, a row per layer in the engine's order; shares: layer → its part of the time, missing: unknown.

    reads: the rows that wrote what it reads. depth: the longest way to it from a layer that reads only inputs and
    weights. lane: its number among the layers of that depth. dtype: number format of what it writes.
    """
    writers: dict[str, int] = {}
    rows, depths, lanes = [], list[int](), Counter[int]()
    for place, layer in enumerate(layers):
        reads = tuple(dict.fromkeys(writers[tensor.name] for tensor in layer.inputs if tensor.name in writers))
        depths.append(1 + max((depths[writer] for writer in reads), default=-1))
        rows.append(
            {
                "layer": layer.name,
                "dtype": layer.outputs[0].dtype if layer.outputs else None,
                "conversion": conversion_of(layer),
                "share": shares.get(layer.name),
                "reads": reads,
                "depth": depths[place],
                "lane": lanes[depths[place]],
            }
        )
        lanes[depths[place]] += 1
        writers.update((tensor.name, place) for tensor in layer.outputs)
    return frame_of(rows, list(GRAPH_COLUMNS))
