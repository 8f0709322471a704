"""Kineto (torch.profiler): the timeline where nsys is missing or not permitted.

It records inside the process, whatever runtime launches the kernels: ONNX Runtime's and TensorRT's are in it too.
"""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inferprof.case import Case
from inferprof.errors import CaseFailed
from inferprof.machine.hardware import Machine
from inferprof.plugins import Profiler, Run
from inferprof.profilers.capturing import no_gpu_work, other_reader
from inferprof.readers.capture_file import identify

if TYPE_CHECKING:
    import pandas as pd

NAME: Final = "kineto"
KEPT: Final = (
    "schemaVersion",
    "deviceProperties",
    "cupti_version",
    "cuda_runtime_version",
    "cuda_driver_version",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "clocks",
    "traceEvents",
)
"""What a trace keeps at its top level; the rest names paths, hosts, users and jobs."""


def command(argv: Sequence[str], out: Path) -> list[str]:
    """The run itself, told to record."""
    return [*argv, "--kineto", str(out)]


def of_rank(out: Path, rank: int) -> Path:
    """Where a rank writes its trace: of several, those of others lie beside that of rank 0."""
    return out.with_name(f"rank{rank}.{out.name}") if rank else out


@contextlib.contextmanager
def record(out: Path, rank: int = 0) -> Iterator[None]:
    """Record the host and the GPU inside the block; the trace (.json, .json.gz) is written behind it."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    # There is one cycle; without acc_events torch warns of what it would clear between several.
    with profile(activities=activities, acc_events=True) as recorded:
        yield
    out.parent.mkdir(parents=True, exist_ok=True)
    recorded.export_chrome_trace(str(of_rank(out, rank)))


def named_range(name: str) -> AbstractContextManager[Any]:
    """A range in the trace; NVTX ranges are not recorded by Kineto."""
    from torch.profiler import record_function

    annotation: AbstractContextManager[Any] = record_function(name)
    return annotation


def finish(out: Path, run: Run) -> None:
    """Strip the trace of what names the machine, its users and paths; those of several ranks become one."""
    del run  # there is no tool to run
    if not out.exists():
        return
    opener = gzip.open if out.suffix == ".gz" else open
    if others := sorted(out.parent.glob(f"rank*.{out.name}")):
        trace = _of_ranks([out, *others])
    else:
        with opener(out, "rt", encoding="utf-8") as file:
            trace = json.load(file)
    with opener(out, "wt", encoding="utf-8") as file:
        json.dump({key: trace[key] for key in KEPT if key in trace}, file)


def _of_ranks(paths: Sequence[Path]) -> dict[str, Any]:
    """The traces of all ranks as one; only that is kept."""
    from inferprof.readers import kineto_ranks

    if (trace := kineto_ranks.merged(paths)) is None:
        raise CaseFailed("kineto: the traces of the ranks do not say which rank each is of (distributedInfo)")
    for path in paths[1:]:
        path.unlink()
    return trace


def read(path: Path, iteration: str | None = None) -> pd.DataFrame:
    """The tidy table of a trace, with another program's range as iteration.

    Raises UserError for anything else, and where there is no such range.
    """
    import pandas as pd

    from inferprof.readers import kineto_json, launch_configs
    from inferprof.tables.trace import iterations
    from inferprof.tables.trace.events import tidy

    kind = identify(path)
    if kind.name != NAME:
        raise other_reader(path, kind)
    timeline = iterations.of_case(kineto_json.read_timeline(path), iteration)
    parts = [tidy(timeline, NAME), launch_configs.rows(timeline, NAME)]
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def refuses(case: Case, machine: Machine) -> str | None:
    """Why a case cannot be recorded here."""
    if reason := no_gpu_work(case, machine):
        return f"kineto: {reason}"
    if "torch" not in machine.packages:
        return "kineto: torch is not installed"
    return None


KINETO: Final = Profiler(
    name=NAME,
    suffix=".json.gz",
    refuses=refuses,
    command=command,
    read=read,
    read_iterations=read,
    finish=finish,
    rank=50,
    traces=True,
    inside="torch",
)
