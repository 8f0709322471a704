"""nsys and TensorRT's own account of one process: which layer and which ONNX node launched which kernels.

TensorRT's ranges name the layers in a trace, but not what is inside of a region of Myelin, nor the ONNX nodes that a
layer was made of; its inspector does. The run that writes both has its layers timed, which slows it and excludes
CUDA graphs: hence a capture apart from that of nsys.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inferprof.plugins import Join, Profiler
from inferprof.profilers import nsys, trt_layers
from inferprof.profilers.capturing import first_refusal, other_reader
from inferprof.readers.capture_file import identify

if TYPE_CHECKING:
    import pandas as pd

NAME: Final = "trt_nodes"


def command(argv: Sequence[str], out: Path) -> list[str]:
    """nsys in front of a run that writes its layers."""
    return nsys.command(trt_layers.command(argv, _profile_of(out)), out)


def _profile_of(out: Path) -> Path:
    from inferprof.readers.trt_json import PROFILE

    return out.with_suffix(PROFILE)


def read(path: Path) -> pd.DataFrame:
    """The tidy table of `x.sqlite` and, where they lie beside it, of the layers in `x.graph.json` and of `x.onnx`.

    Without layers the trace's ranges tell them, and no nodes; the ONNX file tells those that the layers do not.
    Raises UserError where the two are of different engines.
    """
    from inferprof.readers import nsys_sqlite, trt_json
    from inferprof.tables.nodes import graph_nodes, trt_kernels

    if (kind := identify(path)).name != "nsys_sqlite":
        raise other_reader(path, kind)
    described = trt_json.graph_of(_profile_of(path))
    layers = trt_json.read_layers(described, trt_json.load(described)) if described.exists() else ()
    onnx = path.with_suffix(".onnx")
    graph = graph_nodes.of_file(onnx) if onnx.exists() else ()
    return trt_kernels.tidy(nsys_sqlite.read_timeline(path), layers, graph, NAME)


def attributed(table: pd.DataFrame) -> pd.DataFrame:
    """The kernels of a table with the layers, and the nodes, that launched them."""
    from inferprof.tables.nodes import trt_kernels

    return trt_kernels.attributed(table)


def inferences(table: pd.DataFrame) -> int:
    """How many inferences of the engine a table is of."""
    from inferprof.tables.nodes import layer_times

    return layer_times.inferences(table)


TRT_NODES: Final = Profiler(
    name=NAME,
    suffix=".sqlite",
    refuses=functools.partial(first_refusal, NAME, (trt_layers.TRT_LAYERS, nsys.NSYS)),
    command=command,
    read=read,
    finish=nsys.finish,
    rank=10,
    owner="layer",
    join=Join(attributed, inferences),
)
