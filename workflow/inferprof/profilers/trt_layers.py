"""TensorRT's own account of an engine: its layers and, from a run that is for nothing else, the time of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inferprof.case import Case
from inferprof.errors import UserError
from inferprof.machine.hardware import Machine
from inferprof.plugins import Profiler
from inferprof.profilers.capturing import other_reader
from inferprof.readers.capture_file import identify
from inferprof.readers.trt_json import PROFILE

if TYPE_CHECKING:
    import pandas as pd

NAME: Final = "trt_layers"
BACKENDS: Final = ("tensorrt", "tensorrt_rtx")


def command(argv: Sequence[str], out: Path) -> list[str]:
    """The run itself, whose session then writes its layers' times to `out` and the layers beside it."""
    return [*argv, "--native-profile", str(out)]


def read(path: Path) -> pd.DataFrame:
    """The tidy table of a file of layers, of their times, or of trtexec's --exportTimes.

    Times named `x.profile.json` or `x.json` are joined with the layers in `x.graph.json` beside them, where there
    are any.
    Raises UserError for anything else, and for times and layers of two engines.
    """
    from inferprof.readers import trt_json
    from inferprof.tables.nodes import trt_layers

    if (kind := identify(path)).name != NAME:
        raise other_reader(path, kind)
    content = trt_json.load(path)
    match trt_json.kind_of(path, content):
        case "layers":
            return trt_layers.tidy(trt_json.read_layers(path, content), (), NAME)
        case "times":
            return trt_layers.tidy_inferences(trt_json.inferences(path, content)[0], NAME)
    times = trt_json.read_times(path, content)
    graph = trt_json.graph_of(path)
    if not graph.exists():
        return trt_layers.tidy((), times, NAME)
    layers = trt_json.read_layers(graph, _layers_in(graph))
    trt_layers.check_match(layers, times, graph, path)
    return trt_layers.tidy(layers, times, NAME)


def _layers_in(graph: Path) -> object:
    from inferprof.readers import trt_json

    content = trt_json.load(graph)
    if trt_json.kind_of(graph, content) != "layers":
        raise UserError(f"{graph} lies beside a profile and describes no layers: put --exportLayerInfo's file there")
    return content


def refuses(case: Case, machine: Machine) -> str | None:
    """Why a case has no such profile, on whatever machine."""
    del machine
    return None if case.backend in BACKENDS else f"{NAME}: {case.backend} runs no engine of its own"


TRT_LAYERS: Final = Profiler(
    name=NAME, suffix=PROFILE, refuses=refuses, command=command, read=read, rank=60, owner="layer"
)
