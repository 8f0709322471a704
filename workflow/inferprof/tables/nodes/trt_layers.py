"""An engine's layers as rows of the tidy table, and back: what each is made of, and how long it took.

Rows of level layer: `name` is the layer's. Metrics in words (layer_type, tactic, onnx_nodes …) come from the
engine's inspector, duration_* from a profiled run. Lists are one item a line: ONNX nodes; tensors as name, sizes and
format with tabs between.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from inferprof.errors import UserError
from inferprof.grouping import grouped
from inferprof.tables.nodes.trt_engine import Layer, LayerTime, Tensor, dtype_of
from inferprof.tables.schema import conform
from inferprof.tables.trace.aggregate import statistics

LEVEL: Final = "layer"
EXAMPLES: Final = 3
"""Names that an error shows of those that do not match."""
MISSING_SHARE: Final = 0.5
"""Where more layers than these have no time, the times are of another engine."""
SPARSE, DENSE = "sparse", "dense"

_OTHER_PROFILE: Final = re.compile(r" \[profile \d+\]$")
"""Layers of the second and further optimization profiles: they are in the engine and do not run in the first."""


def check_match(layers: Sequence[Layer], times: Sequence[LayerTime], described: Path, timed: Path) -> None:
    """Refuse times of another engine than the layers are of, with counts and examples.

    A layer without a time is no sign of that: it may hold a constant, or be of another optimization profile.
    """
    layer_names = {layer.name for layer in layers}
    strange = [time.name for time in times if time.name not in layer_names]
    first = {layer.name for layer in layers if layer.kind != "Constant" and not _OTHER_PROFILE.search(layer.name)}
    silent = sorted(first - {time.name for time in times})
    if strange:
        what, names = f"{len(strange)} of the {len(times)} layers in {timed} are not in {described}", strange
    elif len(silent) > MISSING_SHARE * len(first):
        what, names = f"{len(silent)} of the {len(first)} layers in {described} are not in {timed}", silent
    else:
        return
    raise UserError(
        f"{what}, such as {'; '.join(names[:EXAMPLES])}: they are of two engines, or of two builds of one; "
        "export both in one run"
    )


def tidy(layers: Sequence[Layer], times: Sequence[LayerTime], tool: str) -> pd.DataFrame:
    """Level layer: what is known of each, in the engine's order; layers that are only timed come last."""
    timed = grouped((time.name, time) for time in times)
    rows = []
    for layer in layers:
        rows += [{"name": layer.name, "metric": metric, "text": text} for metric, text in _words(layer).items()]
        # Names may repeat: the first time of a name is that of the first layer with it.
        rows += _durations(timed[layer.name].pop(0)) if timed.get(layer.name) else []
    rest = [time for left in timed.values() for time in left]
    rows += [row for time in rest for row in _durations(time)]
    columns = ["name", "instances", "metric", "value", "text"]
    return conform(pd.DataFrame(rows, columns=columns).assign(level=LEVEL), tool)


def _words(layer: Layer) -> dict[str, str]:
    sparse = None if layer.sparse is None else SPARSE if layer.sparse else DENSE
    texts = {
        "layer_type": layer.kind,
        "tactic": layer.tactic,
        "weight_dtype": layer.weights,
        "origin": layer.origin,
        "weight_sparsity": sparse,
        "onnx_nodes": "\n".join(map(_in_a_field, layer.nodes)),
        "input_tensors": "\n".join(map(_line, layer.inputs)),
        "output_tensors": "\n".join(map(_line, layer.outputs)),
    }
    return {metric: text or "" for metric, text in texts.items() if text or metric == "layer_type"}


def _line(tensor: Tensor) -> str:
    return "\t".join((_in_a_field(tensor.name), "x".join(map(str, tensor.dims)), _in_a_field(tensor.layout or "")))


def _in_a_field(words: str) -> str:
    """Without what ends a field or a line."""
    return " ".join(words.split()) if "\t" in words or "\n" in words else words


def _durations(time: LayerTime) -> list[dict[str, Any]]:
    values = {
        "duration_total": time.total,
        "duration_mean": time.mean,
        "duration_median": time.median,
        "duration_min": time.shortest,
        "duration_max": time.longest,
    }
    return [
        {"name": time.name, "instances": time.count, "metric": metric, "value": value}
        for metric, value in values.items()
        if value is not None
    ]


def tidy_inferences(stages: Mapping[str, np.ndarray], tool: str) -> pd.DataFrame:
    """Level stage: duration_* of h2d, compute, d2h and enqueue over all inferences; level range: of `latency`."""
    events = pd.DataFrame(stages).melt(var_name="name", value_name="duration")
    rows = statistics(events, ["name"])
    return conform(rows.assign(level=np.where(rows["name"] == "latency", "range", "stage")), tool)


def layers_of(frame: pd.DataFrame) -> tuple[Layer, ...]:
    """The layers of one case again, out of `tidy`'s rows; layers that were only timed are not described."""
    words = frame[(frame["level"] == LEVEL) & frame["text"].notna()]
    # A layer begins with its layer_type, so that two of one name stay two.
    number = (words["metric"] == "layer_type").cumsum()
    return tuple(
        _layer(str(rows["name"].iloc[0]), dict(zip(rows["metric"], rows["text"], strict=True)))
        for _, rows in words.groupby(number, sort=False)
    )


def _layer(name: str, words: Mapping[str, str]) -> Layer:
    sparsity = words.get("weight_sparsity")
    return Layer(
        name=name,
        kind=words["layer_type"] or None,
        inputs=tuple(map(_tensor, _lines(words, "input_tensors"))),
        outputs=tuple(map(_tensor, _lines(words, "output_tensors"))),
        nodes=tuple(_lines(words, "onnx_nodes")),
        tactic=words.get("tactic"),
        weights=words.get("weight_dtype"),
        origin=words.get("origin"),
        sparse=None if sparsity is None else sparsity == SPARSE,
    )


def _lines(words: Mapping[str, str], metric: str) -> list[str]:
    return words[metric].split("\n") if metric in words else []


def _tensor(line: str) -> Tensor:
    name, dims, layout = line.split("\t")
    return Tensor(name, tuple(int(size) for size in dims.split("x") if size), dtype_of(layout), layout or None)
