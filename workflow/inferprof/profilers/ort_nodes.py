"""A trace of the GPU and ONNX Runtime's own profile of one process: which node launched which kernels and copies.

PyPI's builds of ONNX Runtime put neither NVTX ranges around nodes nor kernels into their profile, so the two are
joined by time. Both slow the run, and its profile excludes CUDA graphs: hence a capture apart from that of the
tracer, which is nsys, or Kineto where nsys is missing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inferprof.errors import UserError
from inferprof.plugins import Join, Profiler, Run
from inferprof.profilers import kineto, nsys, ort_profile
from inferprof.profilers.capturing import first_refusal, other_reader
from inferprof.readers.capture_file import identify

if TYPE_CHECKING:
    import pandas as pd

NAME: Final = "ort_nodes"
WITH_KINETO: Final = "ort_nodes_kineto"
PROFILE_SUFFIX: Final = ".ort.json.gz"
"""The profile lies beside the trace under this suffix."""


def profile_of(trace: Path) -> Path:
    """Where the profile that belongs to a trace lies."""
    return trace.with_name(trace.name.removesuffix(".gz").rpartition(".")[0] + PROFILE_SUFFIX)


def command(tracer: Profiler, argv: Sequence[str], out: Path) -> list[str]:
    """The tracer's command around a run that is told to profile."""
    return tracer.command(ort_profile.command(argv, profile_of(out)), out)


def finish(tracer: Profiler, out: Path, run: Run) -> None:
    """As both tools do."""
    for profiler, path in ((tracer, out), (ort_profile.ORT_PROFILE, profile_of(out))):
        if profiler.finish:
            profiler.finish(path, run)


def read(path: Path) -> pd.DataFrame:
    """The tidy table of a trace and the profile beside it, `x.sqlite` or `x.json.gz` and `x.ort.json.gz`.

    Raises UserError where one is missing, or they are not of one process.
    """
    from inferprof.readers import kineto_json, nsys_sqlite, ort_json
    from inferprof.tables.nodes import ort_kernels

    kind = identify(path)
    if kind.name not in ("nsys_sqlite", "kineto"):
        raise other_reader(path, kind)
    profile = profile_of(path)
    if not profile.exists():
        raise UserError(f"{path} needs the ONNX Runtime profile of the same process beside it, at {profile.name}")
    timeline = nsys_sqlite.read_timeline(path) if kind.name == "nsys_sqlite" else kineto_json.read_timeline(path)
    tool = NAME if kind.name == "nsys_sqlite" else WITH_KINETO
    return ort_kernels.tidy(timeline, ort_json.read_profile(profile), tool)


def attributed(table: pd.DataFrame) -> pd.DataFrame:
    """The kernels of a table with the nodes that launched them."""
    from inferprof.tables.nodes import ort_kernels

    return ort_kernels.attributed(table)


def inferences(table: pd.DataFrame) -> int:
    """How many runs of the session a table is of."""
    from inferprof.tables.nodes import providers

    return providers.runs_of(table)


def _with(name: str, tracer: Profiler) -> Profiler:
    return Profiler(
        name=name,
        suffix=tracer.suffix,
        refuses=functools.partial(first_refusal, name, (ort_profile.ORT_PROFILE, tracer)),
        command=functools.partial(command, tracer),
        read=read,
        finish=functools.partial(finish, tracer),
        rank=20,
        session=True,
        owner="node",
        join=Join(attributed, inferences),
    )


ORT_NODES: Final = _with(NAME, nsys.NSYS)
ORT_NODES_KINETO: Final = _with(WITH_KINETO, kineto.KINETO)
