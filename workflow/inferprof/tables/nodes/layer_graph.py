"""Which layer of an engine reads what which other one wrote, and where each stands in a drawing of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import pandas as pd

from inferprof.tables.nodes.kernel_formats import conversion_of
from inferprof.tables.nodes.trt_engine import Layer
from inferprof.tables.records import frame_of

COLUMNS: Final = ("layer", "dtype", "conversion", "share", "reads", "depth", "lane")


def of_layers(layers: Sequence[Layer], shares: Mapping[str, float]) -> pd.DataFrame:
    """COLUMNS, a row per layer in the engine's order; shares: layer → its part of the time, missing: unknown.

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
    return frame_of(rows, list(COLUMNS))
