"""Nsight Systems: the timeline of a run, from its command line to the tidy table."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import getpass
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from inferprof import processes, secret
from inferprof.case import PARALLEL
from inferprof.errors import ToolError
from inferprof.plugins import Profiler, Run
from inferprof.profilers import capturing, nsys_scrub
from inferprof.profilers.capturing import Runner, other_reader
from inferprof.readers.capture_file import identify

if TYPE_CHECKING:
    import pandas as pd

NAME: Final = "nsys"
PRODUCT: Final = "Nsight Systems"
STATS_REPORTS: Final = (
    "cuda_gpu_kern_sum",
    "cuda_api_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_mem_size_sum",
    "nvtx_sum",
    "nvtx_gpu_proj_sum",
)
GraphTrace = Literal["node", "graph"]
PRIVATE: Final = 0o600
"""Mode of the .nsys-rep, which holds the environment of every process that nsys could read."""


@dataclass(frozen=True)
class Options:
    """What is traced beyond the default, each at the price of a slower run."""

    libraries: tuple[Literal["osrt", "cudnn", "cublas"], ...] = ()
    gpu_metrics: bool = False
    """Sample the GPU's counters; needs the permission that ncu needs."""
    graph_trace: GraphTrace = "node"
    """Trace each kernel of a CUDA graph (named, and the run is slower), or each graph launch as a whole."""
    ranged: bool = True
    """Between cudaProfilerStart and Stop, which our runs call; a program of others is watched from its start."""


def command(argv: Sequence[str], out: Path, options: Options = Options()) -> list[str]:
    """The run's argv with nsys in front; the report goes beside `out` as .nsys-rep.

    The range ends with `stop`: nsys's default, stop-shutdown, ends the program before it writes its record.
    """
    return [
        capturing.executable(NAME, PRODUCT),
        "profile",
        f"--trace={','.join(('cuda', 'nvtx', *options.libraries))}",
        "--sample=none",
        "--cpuctxsw=none",
        *(["--capture-range=cudaProfilerApi", "--capture-range-end=stop"] if options.ranged else []),
        *(["--trace-fork-before-exec=true"] if any(word.startswith(f"{PARALLEL}=") for word in argv) else []),
        f"--cuda-graph-trace={options.graph_trace}",
        *(["--gpu-metrics-devices=cuda-visible"] if options.gpu_metrics else []),
        "--force-overwrite=true",
        f"--output={out.with_suffix('.nsys-rep')}",
        *argv,
    ]


def capture(
    argv: Sequence[str], out: Path, options: Options = Options(), runner: Runner = processes.run_merged
) -> None:
    """Run `argv` under nsys with options. Leaves at `out` the scrubbed SQLite export, beside it the report and CSVs.

    out.nsys-rep is for its owner only; the other files hold no environment, no host or user name and no path. Raises
    UserError where there is no nsys, ToolError where nsys or the run failed.
    """
    profiler = dataclasses.replace(NSYS, command=functools.partial(command, options=options))
    capturing.capture(profiler, argv, out, runner=runner)


def finish(out: Path, run: Run) -> None:
    """Report → SQLite at `out` and CSVs, both without secrets; the report itself becomes private."""
    nsys, prefix = export(out, run), out.with_suffix("")
    reports = [f"--report={name}" for name in STATS_REPORTS]
    run([nsys, "stats", *reports, "--format=csv", "--force-overwrite=true", f"--output={prefix}", str(out)])
    hidden = secrets()
    nsys_scrub.scrub(out, hidden)
    for csv in out.parent.glob("*.csv"):
        csv.write_text(secret.redact(csv.read_text(encoding="utf-8"), hidden), encoding="utf-8")


def export(out: Path, run: Run) -> str:
    """Make the report private and export it to `out`, as it is; the nsys that did so."""
    report = out.with_suffix(".nsys-rep")
    if not report.exists():
        raise ToolError(["nsys", "profile"], 0, "nsys wrote no report: the run never reached its measured range")
    report.chmod(PRIVATE)
    nsys = capturing.executable(NAME, PRODUCT)
    run([nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={out}", str(report)])
    return nsys


def secrets() -> list[str]:
    """What no output may hold: host, user, home, and the variables that the run is not given."""
    allowed = capturing.allowed_environment(os.environ)
    withheld = {name: value for name, value in os.environ.items() if name not in allowed}
    return secret.values(withheld, socket.gethostname(), *_user())


def _user() -> Iterator[str]:
    """The user's name and home; a user id without an entry in /etc/passwd may have neither."""
    for read in (getpass.getuser, Path.home):
        with contextlib.suppress(KeyError, OSError, RuntimeError):
            yield str(read())


def read(path: Path, iteration: str | None = None) -> pd.DataFrame:
    """The tidy table of a .sqlite export or of a CSV of `nsys stats`, with another program's range as iteration.

    Raises UserError for anything else, and where there is no such range.
    """
    import pandas as pd

    from inferprof.readers import launch_configs, nsys_sqlite, nsys_stats
    from inferprof.tables.trace import iterations, kernel_compare
    from inferprof.tables.trace.events import tidy

    kind = identify(path)
    if kind.name == "nsys_sqlite":
        timeline = iterations.of_case(nsys_sqlite.read_timeline(path), iteration)
        parts = [tidy(timeline, NAME), launch_configs.rows(timeline, NAME)]
        return pd.concat([part for part in parts if len(part)], ignore_index=True)
    if kind.name == "nsys_stats":
        return kernel_compare.as_iterations(nsys_stats.read(path, NAME), iteration or kernel_compare.ITERATION)
    raise other_reader(path, kind)


NSYS: Final = Profiler(
    name=NAME,
    suffix=".sqlite",
    refuses=functools.partial(capturing.no_tool, NAME, PRODUCT),
    command=command,
    read=read,
    read_iterations=read,
    finish=finish,
    rank=40,
    traces=True,
)
