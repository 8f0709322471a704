"""Kernels by layer and node of a TensorRT engine, as rows of the tidy table, and back.

Levels kernel, memcpy and memset, whose `owner` is `layer`, or `layer > node`; missing: nobody's. Kernels
have layer_confidence and node_confidence too, the least of their launches. Level layer: what the engine's layers are
made of; level range: as for any trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

from inferprof.errors import UserError
from inferprof.tables.nodes import attribution, trt_join, trt_layers
from inferprof.tables.nodes.graph_nodes import Node
from inferprof.tables.nodes.trt_engine import Layer
from inferprof.tables.schema import joined
from inferprof.tables.trace import aggregate, one_iteration
from inferprof.tables.trace.timeline import KERNEL, PATH_SEPARATOR, Timeline

_CONFIDENCES: Final = ("layer_confidence", "node_confidence")


def tidy(timeline: Timeline, layers: Sequence[Layer], graph: Sequence[Node], tool: str) -> pd.DataFrame:
    """The rows that the module describes.

    Raises UserError where trace and layers are of two engines, or nothing in it tells of TensorRT.
    """
    if not layers and not any(trt_join.ENQUEUE in path for path in timeline.paths):
        raise UserError(
            f"the trace has no range {trt_join.ENQUEUE}, which TensorRT opens around an inference: trace NVTX too "
            "(--trace=cuda,nvtx), or give the engine's layers"
        )
    whose = trt_join.owners(timeline, layers, graph)
    owner = whose["layer"].str.cat(PATH_SEPARATOR + whose["node"].fillna("")).str.removesuffix(PATH_SEPARATOR)
    frames = [
        aggregate.operations(timeline, owner=owner),
        _confidences(timeline, whose.assign(owner=owner)),
        aggregate.ranges(timeline),
        one_iteration.rows(timeline, owner),
    ]
    rows = joined(frames, tool)
    return pd.concat([trt_layers.tidy(layers, (), tool), rows], ignore_index=True) if layers else rows


def _confidences(timeline: Timeline, whose: pd.DataFrame) -> pd.DataFrame:
    """A row per kernel, owner and kind of confidence."""
    kernels = timeline.ops["kind"].to_numpy() == KERNEL
    named = whose[kernels].assign(name=[timeline.names[code] for code in timeline.ops.loc[kernels, "name"]])
    least = named.groupby(["name", "owner"], sort=False)[list(_CONFIDENCES)].min().reset_index()
    rows: pd.DataFrame = least.melt(["name", "owner"], var_name="metric").dropna(subset=["value"])
    return rows.assign(level="kernel")


def attributed(frame: pd.DataFrame) -> pd.DataFrame:
    """The join as attribution.COLUMNS, of one case at the levels layer and op: frame as `tidy` gives it.

    Further columns: `layer`, also in the rows of level op.
    """
    rows = frame[frame["level"] == "kernel"]
    table = attribution.launched(frame)
    for metric in _CONFIDENCES:
        values = rows.loc[rows["metric"] == metric, ["name", "owner", "value"]]
        values = values.rename(columns={"name": "kernel", "value": metric})
        table = table.merge(values, on=["kernel", "owner"], how="left")
    owner = table["owner"].str.split(PATH_SEPARATOR, n=1, expand=True, regex=False).reindex(columns=range(2))
    common = table.drop(columns=list(_CONFIDENCES)).assign(layer=owner[0])
    parts = [
        common.assign(owner=owner[place], owner_level=level, confidence=table[metric].astype("float64"))
        for place, (level, metric) in enumerate(zip(("layer", "op"), _CONFIDENCES, strict=True))
    ]
    return attribution.conform(pd.concat(parts, ignore_index=True))
