"""Nsight Systems: the timeline of a run, from its command line to the tidy table."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from inferprof.case import Case
from inferprof.errors import ToolError, UserError
from inferprof.hardware import Machine
from inferprof.plugins import OpenRange, Profiler
from inferprof.profilers import nsys_scrub
from inferprof.profilers.capture_file import identify

if TYPE_CHECKING:
    import pandas as pd

NAME: Final = "nsys"
STATS_REPORTS: Final = (
    "cuda_gpu_kern_sum",
    "cuda_api_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_mem_size_sum",
    "nvtx_sum",
    "nvtx_gpu_proj_sum",
)
PRIVATE: Final = 0o600
"""Mode of the .nsys-rep, which holds the environment of every process that nsys could read."""
INSTALLS: Final = (
    "/opt/nvidia/nsight-systems*/**/target-linux-*/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
)
"""Where NVIDIA's packages put nsys without putting it on PATH."""
ALLOWED: Final = re.compile(
    r"PATH|LD_LIBRARY_PATH|HOME|LANG|LC_\w+|TMPDIR|VIRTUAL_ENV|CONDA_PREFIX|XDG_CACHE_HOME|HF_HOME|HF_HUB_OFFLINE|"
    r"(?:CUDA|NVIDIA|CUBLAS|CUDNN|NCCL|TRT|POLYGRAPHY|ORT|OMP|MKL|KMP|OPENBLAS|TORCH|TORCHINDUCTOR|TRITON|PYTORCH|PYTHON)_?\w*"
)
"""Environment variables that the run may need. nsys stores all that it is started with."""
_NAMES_A_SECRET: Final = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|API_?KEY", re.IGNORECASE)


class Runner(Protocol):
    """subprocess.run, as far as it is used."""

    def __call__(
        self, argv: Sequence[str], /, *, env: Mapping[str, str], text: bool, stdout: int, stderr: int
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""


@dataclass(frozen=True)
class Options:
    """What is traced beyond the default, each at the price of a slower run."""

    libraries: tuple[Literal["osrt", "cudnn", "cublas"], ...] = ()
    gpu_metrics: bool = False
    """Sample the GPU's counters; needs the permission that ncu needs."""
    graph_trace: Literal["node", "graph"] = "node"
    """Trace each kernel of a CUDA graph (named, and the run is slower), or each graph launch as a whole."""


def command(argv: Sequence[str], out: Path, options: Options = Options(), nsys: str = "nsys") -> list[str]:
    """The run's argv with nsys in front; the report goes beside `out` as .nsys-rep.

    The range ends with `stop`: nsys's default, stop-shutdown, ends the program before it writes its record.
    """
    return [
        nsys,
        "profile",
        f"--trace={','.join(('cuda', 'nvtx', *options.libraries))}",
        "--sample=none",
        "--cpuctxsw=none",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        f"--cuda-graph-trace={options.graph_trace}",
        *(["--gpu-metrics-devices=cuda-visible"] if options.gpu_metrics else []),
        "--force-overwrite=true",
        f"--output={out.with_suffix('.nsys-rep')}",
        *argv,
        "--profiler",
        NAME,
        "--capture",
        str(out),
    ]


def capture(
    argv: Sequence[str],
    out: Path,
    options: Options = Options(),
    runner: Runner = subprocess.run,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Run `argv` under nsys. Leaves at `out` the scrubbed SQLite export, beside it the report and its CSVs.

    out.nsys-rep is for its owner only; the other files hold no environment, no host or user name and no path. Raises
    UserError where there is no nsys, ToolError where nsys or the run failed.
    """
    nsys = find(environment)
    out.parent.mkdir(parents=True, exist_ok=True)
    # Nobody else can look into the folder while the report has nsys's own mode.
    with tempfile.TemporaryDirectory(prefix=".nsys-", dir=out.parent) as private:
        inside = Path(private, out.name)
        argv = command(argv, inside, options, nsys)
        _checked(argv, runner, environment)
        report = inside.with_suffix(".nsys-rep")
        if not report.exists():
            raise ToolError(argv, 0, "nsys wrote no report: the run never reached its measured range")
        report.chmod(PRIVATE)
        _export(nsys, report, inside, runner, environment)
        for file in sorted(Path(private).iterdir()):
            file.replace(out.parent / file.name)


def _export(nsys: str, report: Path, out: Path, runner: Runner, environment: Mapping[str, str]) -> None:
    """Report → SQLite and CSVs, both without secrets."""
    sqlite = ["export", "--type=sqlite", "--force-overwrite=true", f"--output={out}", str(report)]
    _checked([nsys, *sqlite], runner, environment)
    reports = [f"--report={name}" for name in STATS_REPORTS]
    stats = ["stats", *reports, "--format=csv", "--force-overwrite=true", f"--output={out.with_suffix('')}", str(out)]
    _checked([nsys, *stats], runner, environment)
    secrets = secrets_here(environment)
    nsys_scrub.scrub(out, secrets)
    for csv in out.parent.glob("*.csv"):
        csv.write_text(nsys_scrub.redact(csv.read_text(encoding="utf-8"), secrets), encoding="utf-8")


def secrets_here(environment: Mapping[str, str]) -> list[str]:
    """What no output may hold: this environment's values, host, user and home."""
    return nsys_scrub.secrets_of(environment, socket.gethostname(), getpass.getuser(), str(Path.home()))


def allowed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that nsys, and with it the run, is started with."""
    return {
        name: value
        for name, value in environment.items()
        if ALLOWED.fullmatch(name) and not _NAMES_A_SECRET.search(name)
    }


def find(environment: Mapping[str, str] = os.environ) -> str:
    """nsys on PATH, or the newest in NVIDIA's install folders. Raises UserError where there is none."""
    if found := shutil.which("nsys", path=environment.get("PATH")):
        return found
    installed = sorted(str(path) for pattern in INSTALLS for path in Path("/").glob(pattern.lstrip("/")))
    if not installed:
        raise UserError("nsys was not found on PATH; install Nsight Systems, or take nsys out of `profilers`")
    return installed[-1]


def _checked(argv: Sequence[str], runner: Runner, environment: Mapping[str, str]) -> None:
    done = runner(
        argv, env=allowed_environment(environment), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode != 0:
        raise ToolError(argv, done.returncode, done.stdout or "")


@contextlib.contextmanager
def record(out: Path) -> Iterator[OpenRange]:
    """Inside the run: cudaProfilerStart and Stop around the block, which nsys records; yields NVTX's ranges.

    `out` is nsys's own affair. Without the `nvtx` package ranges are not named, and the capture is still made.
    """
    from cuda.bindings import runtime

    _done(runtime.cudaProfilerStart())
    try:
        yield nvtx_range
    finally:
        _done(runtime.cudaProfilerStop())


def _done(status: tuple[Any]) -> None:
    (error,) = status
    if int(error):
        raise RuntimeError(f"the CUDA profiler interface said {error.name}")


def nvtx_range(name: str) -> contextlib.AbstractContextManager[Any]:
    """An NVTX push-pop range in the default domain; nothing where the `nvtx` package is missing."""
    try:
        import nvtx
    except ImportError:
        return contextlib.nullcontext()
    opened: contextlib.AbstractContextManager[Any] = nvtx.annotate(name)
    return opened


def read(path: Path) -> pd.DataFrame:
    """The tidy table of a .sqlite export or of a CSV of `nsys stats`. Raises UserError for anything else."""
    from inferprof.profilers import nsys_sqlite
    from inferprof.tables.events import tidy

    kind = identify(path)
    if kind == "nsys_sqlite":
        return tidy(nsys_sqlite.read_timeline(path), NAME)
    raise UserError(f"{path} is a Kineto trace: read it with `inferprof table kineto`")


def refuses(case: Case, machine: Machine) -> str | None:
    """Why a case cannot be captured here."""
    if machine.gpu is None:
        return "nsys: no GPU on this machine"
    if NAME not in machine.tools:
        return "nsys: not found; install Nsight Systems"
    return None


NSYS: Final = Profiler(
    name=NAME,
    suffix=".sqlite",
    refuses=refuses,
    command=command,
    read=read,
    record=record,
)
