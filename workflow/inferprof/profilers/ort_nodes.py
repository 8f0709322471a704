"""nsys and ONNX Runtime's own profile of one process: which node launched which kernels and copies.

PyPI's builds of ONNX Runtime put neither NVTX ranges around nodes nor kernels into their profile, so the two are
joined by time. Both slow the run, and its profile excludes CUDA graphs: hence a capture apart from that of nsys.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inferprof.case import Case
from inferprof.errors import UserError
from inferprof.hardware import Machine
from inferprof.plugins import Profiler, Run
from inferprof.profilers import nsys, ort_profile
from inferprof.profilers.capture_file import identify, other_reader

if TYPE_CHECKING:
    import pandas as pd

NAME: Final = "ort_nodes"
PROFILE_SUFFIX: Final = ".ort.json.gz"
"""The profile lies beside the .sqlite export under this suffix."""


def profile_of(out: Path) -> Path:
    """Where the profile of a capture lies."""
    return out.with_suffix(PROFILE_SUFFIX)


def command(argv: Sequence[str], out: Path) -> list[str]:
    """nsys in front of a run that is told to profile."""
    return nsys.command(ort_profile.command(argv, profile_of(out)), out)


def finish(out: Path, run: Run) -> None:
    """As both tools do."""
    nsys.finish(out, run)
    ort_profile.finish(profile_of(out), run)


def read(path: Path) -> pd.DataFrame:
    """The tidy table of both files. Raises UserError where one is missing, or they are not of one process."""
    from inferprof.tables import nsys_sqlite, ort_json, ort_kernels

    kind = identify(path)
    if kind != "nsys_sqlite":
        raise other_reader(path, kind)
    profile = profile_of(path)
    if not profile.exists():
        raise UserError(f"{path} needs the ONNX Runtime profile of the same process beside it, at {profile.name}")
    return ort_kernels.tidy(nsys_sqlite.read_timeline(path), ort_json.read_profile(profile), NAME)


def refuses(case: Case, machine: Machine) -> str | None:
    """Why a case cannot be captured here: what either tool needs."""
    for tool in (ort_profile, nsys):
        if reason := tool.refuses(case, machine):
            return f"{NAME}: {reason.partition(': ')[2]}"
    return None


ORT_NODES: Final = Profiler(name=NAME, suffix=".sqlite", refuses=refuses, command=command, read=read, finish=finish)
