"""What the ONNX file of --model, and an engine's layers, add to a capture: owners of kernels, what is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas as pd

from inferprof import registry
from inferprof.errors import UserError
from inferprof.readers.kind import Capture
from inferprof.words import counted

if TYPE_CHECKING:
    from inferprof.tables.nodes.attribution import OwnerLevel

SHOWN: Final = 3
LONGEST_NAME: Final = 60
_LEVELS: Final[dict[str, OwnerLevel]] = {"layer": "layer", "ONNX node": "op"}


def owned(captures: Sequence[Capture], model: Path | None) -> Capture | None:
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
