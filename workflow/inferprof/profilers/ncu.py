"""Nsight Compute: the counters of a case's longest kernels, from its command line to the tidy table.

It runs after nsys or Kineto, whose table names the kernels: one launch of each with each grid and block, out of one
iteration.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from inferprof.case import Case
from inferprof.errors import CaseFailed, UserError
from inferprof.files import read_json, write_json
from inferprof.machine import hardware
from inferprof.machine.hardware import Machine
from inferprof.plugins import Profiler, Run
from inferprof.profilers import capturing, kineto, nsys
from inferprof.profilers.capturing import other_reader
from inferprof.readers.capture_file import identify

if TYPE_CHECKING:
    import pandas as pd

    from inferprof.readers.ncu_launches import Launch
    from inferprof.tables.counters.ncu_choice import Choice

NAME: Final = "ncu"
PRODUCT: Final = "Nsight Compute"
ITERATION: Final = "iteration"
NameBase = Literal["mangled", "function"]
First = Literal["invocation", "count"]


@dataclass(frozen=True)
class Focus:
    """Which launches are looked into: of these kernels, or of all where there are none.

    `first` says how ncu is told to take one launch of each kernel with each grid, block and shared memory: by the
    number of the invocation, or by a count per launch configuration, which two kernels with equal ones share.
    """

    names: tuple[str, ...] = ()
    base: NameBase = "function"
    window: bool = False
    """Only between cuProfilerStart and Stop, inside an iteration."""
    first: First = "invocation"


@dataclass(frozen=True)
class Options:
    """How ncu measures: clocks as in a measurement unless `base` locks them, caches emptied before each pass."""

    clock_control: Literal["none", "base"] = "none"
    cache_control: Literal["all", "none"] = "all"
    focus: Focus = Focus()


def command(argv: Sequence[str], out: Path, options: Options = Options()) -> list[str]:
    """The run's argv with ncu in front; the report is `out`. Kernels of CUDA graphs are looked into one by one."""
    from inferprof.readers.ncu_metrics import SECTIONS

    return [
        capturing.executable(NAME, PRODUCT),
        f"--export={out}",
        "--force-overwrite",
        "--target-processes=all",
        "--graph-profiling=node",
        f"--clock-control={options.clock_control}",
        f"--cache-control={options.cache_control}",
        "--nvtx",
        # As one expression, since an older ncu refuses a section by a name that it does not know.
        f"--section=regex:^({'|'.join(SECTIONS)})$",
        *_filters(options.focus),
        *argv,
    ]


def _filters(focus: Focus) -> list[str]:
    """An invocation is counted per kernel, grid, block and shared memory; --launch-count without the kernel.

    https://docs.nvidia.com/nsight-compute/NsightComputeCli/#profile (filter-mode, kernel-id)
    """
    names = "|".join(re.escape(name) for name in focus.names)
    chosen = f"regex:^({names})$" if names else ""
    window = ["--profile-from-start=off"] if focus.window else []
    base = f"--kernel-name-base={focus.base}"
    mode = "--filter-mode=per-launch-config"
    if focus.first == "count":
        return [*window, base, mode, *([f"--kernel-name={chosen}"] if names else []), "--launch-count=1"]
    inside = [f"--nvtx-include={ITERATION}/"] if focus.window else []
    return [*window, *inside, base, mode, f"--kernel-id=::{chosen}:1"]


def aim(table: Path) -> Profiler:
    """ncu, looking into the kernels that the timeline's table names."""
    from inferprof.tables import schema
    from inferprof.tables.counters import ncu_choice

    try:
        return looking_into(ncu_choice.choose(schema.read_table(table)))
    except CaseFailed as error:
        raise CaseFailed(f"{NAME}: {error}") from None


def looking_into(choice: Choice, options: Options = Options()) -> Profiler:
    """ncu on chosen kernels, by the number of their invocation; where that sees nothing, by a count."""
    focus = dataclasses.replace(_focus(choice), window=True)

    def way(first: First) -> Profiler:
        own = dataclasses.replace(options, focus=dataclasses.replace(focus, first=first))
        return dataclasses.replace(
            NCU,
            command=functools.partial(command, options=own),
            finish=functools.partial(finish, options=own, choice=choice),
        )

    def otherwise(log: str) -> Profiler | None:
        return way("count") if saw_nothing(log) else None

    return dataclasses.replace(way("invocation"), otherwise=otherwise)


def _focus(choice: Choice) -> Focus:
    """By mangled names, which ncu spells as nsys does; by function names where one of them is not known."""
    from inferprof.tables.counters.ncu_choice import function_name

    if all(kernel.symbols for kernel in choice.kernels):
        return Focus(tuple(symbol for kernel in choice.kernels for symbol in kernel.symbols), "mangled")
    return Focus(tuple(dict.fromkeys(function_name(kernel.name) for kernel in choice.kernels)), "function")


def finish(out: Path, run: Run, options: Options = Options(), choice: Choice | None = None) -> None:
    """Make the report private, since it holds the run's command line, and write beside it how it was taken."""
    del run  # the report is the capture
    if not out.exists():
        return
    out.chmod(nsys.PRIVATE)
    settings = {
        "bytes": out.stat().st_size,
        "clock_control": options.clock_control,
        "cache_control": options.cache_control,
        "selection": options.focus.first,
    }
    write_json(_settings_of(out), {**settings, **(dataclasses.asdict(choice) if choice else {})})


def _settings_of(report: Path) -> Path:
    return report.with_suffix(".settings.json")


# --- refusals --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """Something that ncu prints, and the reason of the refusal: {kernel} and {error} are filled in."""

    printed: re.Pattern[str]
    reason: str


NOTHING_SEEN: Final = Known(
    # Where the program itself failed, that is the error.
    re.compile(r"\A(?!.*returned an error code).*No kernels were profiled", re.DOTALL),
    "it saw none of the kernels that it was to look into: the record of the run says if that failed; "
    "if not, capture the timeline again, whose kernels are no longer the run's",
)
REFUSALS: Final = (
    Known(re.compile(r"ERR_NVGPUCTRPERM"), hardware.NOT_PERMITTED),
    Known(
        re.compile(r"driver resource was unavailable"),
        "the counters are held by another tool: pause DCGM (`dcgmi profile --pause`) or end the other profiler, "
        "then capture again",
    ),
    Known(
        re.compile(r"LibraryNotLoaded"),
        "this ncu does not fit the driver: install the Nsight Compute of the driver's CUDA version or a newer one",
    ),
    Known(
        re.compile(r'Failed to profile "(?P<kernel>[^"]+)"'),
        "the kernel {kernel} cannot be replayed ({error}): leave the case to nsys, or profile it by hand with "
        "`ncu --replay-mode application`",
    ),
    NOTHING_SEEN,
)
"""As ncu 2022 to 2025 print it. The last one is what is left where nothing else explains it."""
_ERROR: Final = re.compile(r"^==ERROR== (?!Failed to profile|An error was reported)(.+)$", re.MULTILINE)


def refusal(log: str) -> str | None:
    """The reason, or None where ncu could watch; also where the run itself failed, which is no matter of ncu's."""
    for candidate in REFUSALS:
        if match := candidate.printed.search(log):
            message = _ERROR.search(log)
            words = {**match.groupdict(), "error": message[1].strip() if message else "ncu gives no reason"}
            return candidate.reason.format_map(words)
    return None


def saw_nothing(log: str) -> bool:
    """Whether ncu worked, but none of the launches was one that it was to look into."""
    return refusal(log) == NOTHING_SEEN.reason


# --- reading ---------------------------------------------------------------------------------------------------


def read(path: Path) -> pd.DataFrame:
    """The tidy table of a report, or of one of its pages, as CSV or text. Raises UserError for anything else."""
    import pandas as pd

    from inferprof.readers import ncu_csv, ncu_launches, ncu_rep, ncu_text
    from inferprof.tables import schema

    kind = identify(path)
    readers = {"ncu_report": ncu_rep.read, "ncu_csv": ncu_csv.read, "ncu_text": ncu_text.read}
    if kind.name not in readers:
        raise other_reader(path, kind)
    launches = readers[kind.name](path)
    parts = [ncu_launches.rows(launches, NAME)]
    if (settings := _settings_of(path)).exists():
        facts = read_json(settings)
        if kind.name == "ncu_report" and facts["bytes"] != path.stat().st_size:
            raise UserError(f"{path} is cut short: it had {facts['bytes']:,} bytes; copy it again")
        rows = _settings(facts, launches)
        parts.append(schema.conform(pd.DataFrame(rows).assign(level="run", name=NAME), NAME))
    return pd.concat(parts, ignore_index=True)


def _settings(content: dict[str, Any], launches: Collection[Launch]) -> list[dict[str, Any]]:
    """How the launches were taken, and which of the chosen kernels are not among them."""
    from inferprof.tables.counters.ncu_choice import function_name

    symbols = {launch.symbol for launch in launches if launch.symbol}
    functions = {function_name(launch.name) for launch in launches}

    def is_counted(kernel: dict[str, Any]) -> bool:
        if symbols and kernel["symbols"]:
            return bool(symbols & set(kernel["symbols"]))
        return function_name(kernel["name"]) in functions

    lacking = [kernel for kernel in content.get("kernels", ()) if not is_counted(kernel)]
    not_counted = [{"metric": "not_counted", "text": kernel["name"]} for kernel in lacking]
    words = [{"metric": name, "text": content[name]} for name in ("clock_control", "cache_control")]
    share = [{"metric": "kernel_time_chosen", "value": 100 * content["share"]}] if "share" in content else []
    return [*words, *share, *not_counted, {"metric": "report_bytes", "value": content["bytes"]}]


def refuses(case: Case, machine: Machine) -> str | None:
    """Why the counters of a case cannot be read here."""
    denied = f"{NAME}: {machine.no_counters}" if machine.no_counters else None
    return capturing.no_tool(NAME, PRODUCT, case, machine) or denied


NCU: Final = Profiler(
    name=NAME,
    suffix=".ncu-rep",
    refuses=refuses,
    command=command,
    read=read,
    finish=finish,
    after=(nsys.NAME, kineto.NAME),
    aim=aim,
    refusal=refusal,
    iterations=1,
    counts=True,
)
