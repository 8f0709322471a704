"""`inferprof verify`: what works on the machine in hand, row by row, and what to do about the rest.

Each row passes, fails or is not here, and none of them stops the rest.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib.util
import io
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from inferprof import bundles, escape, processes, progress
from inferprof.case import Case, outcomes_csv
from inferprof.errors import CaseFailed, UserError, unknown
from inferprof.files import make_folder, write_json, write_text
from inferprof.machine import hardware
from inferprof.machine.hardware import Machine
from inferprof.verify.rows import ROWS, Row, next_step
from inferprof.verify.site import Runner, Site, needs_row, records_since

if TYPE_CHECKING:
    from rich.table import Table

Outcome = Literal["pass", "fail", "not here"]
SoFar = tuple[float, str, Sequence["Result"]]
"""When verify began, by the clock and as text, and the results of the rows before."""
STUDY = "verify"
LOGS = Path("log", STUDY)
"""Where the log of each row lies, below the folder that verify works in."""
ROW_SHARE = 0.25
"""Of the time for all rows, what one of them may take."""


@dataclass(frozen=True)
class Asked:
    """What verify is asked for. `minutes` bounds all rows together; one that is not reached fails."""

    out: Path
    only: tuple[str, ...] = ()
    minutes: float = 10.0
    attempt: bool = False
    engine: Path | None = None


@dataclass(frozen=True)
class Result:
    """How a row ended. `seconds` of a row that is not here are 0."""

    name: str
    title: str
    outcome: Outcome
    detail: str
    """What was seen, or why it failed or is not here."""
    next_step: str | None
    seconds: float
    log: str | None
    """The log beside verify.json; None where nothing was run."""


def verify(
    asked: Asked,
    machine: Machine | None = None,
    rows: Sequence[Row] = ROWS,
    runner: Runner = processes.run_logged,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Try the rows and write verify.json, verify.txt and a bundle of all to send back.

    Returns the content of verify.json.
    Raises UserError where a row is asked for that does not exist.
    """
    machine = machine or hardware.detect()
    wanted = chosen(rows, asked.only)
    started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    begun = clock()
    shutil.rmtree(asked.out / LOGS, ignore_errors=True)
    results: list[Result] = []
    with progress.task("Verify", [row.name for row in wanted]):
        for row in wanted:
            progress.step(row.name)
            results.append(_tried(row, asked, machine, runner, clock, (begun, started, results)))
    content = {
        "schema": 1,
        "machine": machine.slug,
        "gpu": machine.gpu.name if machine.gpu else None,
        "started": started,
        "seconds": round(clock() - begun, 1),
        "rows": [dataclasses.asdict(result) for result in results],
    }
    _write(asked.out, content)
    content["bundle"] = _bundle(asked.out, machine.slug, started)
    _write(asked.out, content)
    return content


def _write(out: Path, content: Mapping[str, Any]) -> None:
    write_json(out / f"{STUDY}.json", content)
    write_text(out / f"{STUDY}.txt", escape.text(render(content)) + "\n")


def _bundle(out: Path, machine: str, started: str) -> str:
    """Write what was measured and said as a bundle; where it is, or why there is none, which costs no row."""
    cases = _measured(out / machine / "benchmark", started)
    write_text(out / "reports" / STUDY / "cases.csv", outcomes_csv(machine, ((case, "run", "") for case in cases)))
    try:
        made = bundles.write(out, STUDY, machine, out=out / f"{STUDY}.bundle.zip").path.name
        return f"to send back, in the same folder: {made}"
    except (UserError, ModuleNotFoundError) as error:  # the core runs on machines without pandas
        return f"no bundle to send back: {error}"


def _measured(benchmark: Path, started: str) -> list[Case]:
    """The cases of this verify's records."""
    paths = [path for path, record in records_since(benchmark, started)]
    return list(dict.fromkeys(Case.from_path(str(path.parent)) for path in paths))


def exit_code(content: Mapping[str, Any]) -> int:
    """0 only if no row failed."""
    return int(any(row["outcome"] == "fail" for row in content["rows"]))


def chosen(rows: Sequence[Row], only: Sequence[str]) -> list[Row]:
    """The rows of these names and those that they come after; all where no name is given."""
    by_name = {row.name: row for row in rows}
    if wrong := [name for name in only if name not in by_name]:
        raise unknown("rows", wrong, by_name)
    names = set(only or by_name)
    for row in reversed(rows):
        if row.name in names:
            names |= set(row.after)
    return [row for row in rows if row.name in names]


def _tried(
    row: Row, asked: Asked, machine: Machine, runner: Runner, clock: Callable[[], float], so_far: SoFar
) -> Result:
    """One row, whatever happens in it."""
    begun, started, before = so_far
    log = asked.out / LOGS / f"{row.name}.log"
    row_begun, row_s = clock(), asked.minutes * 60 * ROW_SHARE
    ends = min(row_begun + row_s, begun + asked.minutes * 60)
    failed = frozenset(result.name for result in before if result.outcome == "fail")
    site = Site(asked.out, machine, log, runner, lambda: ends - clock(), started, failed, asked.attempt, asked.engine)
    outcome, detail = _outcome(row, site, before)
    ran = outcome != "not here"
    return Result(
        row.name,
        row.title,
        outcome,
        " ".join(detail.split()),
        next_step(row, outcome, detail),
        round(clock() - row_begun, 1) if ran else 0.0,
        str(log.relative_to(asked.out)) if ran and log.exists() else None,
    )


def _outcome(row: Row, site: Site, before: Sequence[Result]) -> tuple[Outcome, str]:
    """Not here, and why; else whether it passed, and what was seen."""
    if reason := row.needs(site):
        return "not here", reason
    if site.seconds_left() <= 0:
        return "fail", "was not reached: the time for all rows was spent"
    if lost := [result.name for result in before if result.name in row.after and result.outcome != "pass"]:
        return "not here", needs_row(lost[0])
    make_folder(site.log.parent)
    try:
        return "pass", row.run(site)
    except (CaseFailed, UserError) as error:
        return "fail", str(error)
    except Exception as error:  # a file that holds something unexpected is the row's failure, and not verify's end
        return "fail", f"{type(error).__name__}: {error}"


STYLES: Final = {"pass": "green", "fail": "bold red", "not here": "yellow"}
"""Outcome → how it is drawn, in the order in which they are counted."""


def render(content: Mapping[str, Any]) -> str:
    """verify.json as lines: a row each, with what was seen, and below it what to do."""
    lines = [_head(content), ""]
    for row, what_next in _with_next_steps(content):
        lines.append(f"{row['outcome']:8}  {row['name']:26} {row['seconds']:5.1f} s  {row['detail']}")
        if what_next:
            lines.append(f"{'':46}→ {what_next}")
    return "\n".join([*lines, "", _end(content)])


def drawn(content: Mapping[str, Any], columns: int) -> str:
    """The same as a table in colours for a terminal of so many columns; as `render` where Rich is not installed."""
    if importlib.util.find_spec("rich") is None:  # the core runs on machines without Rich
        return render(content)
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, force_terminal=True, width=columns).print(_table(content))
    return out.getvalue().rstrip()


def _table(content: Mapping[str, Any]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=_head(content), caption=_end(content), title_justify="left", caption_justify="left")
    for name in ("", "row", "s"):
        table.add_column(name, no_wrap=True, justify="right" if name == "s" else "left")
    table.add_column("what was seen, and what to do next", overflow="fold")
    for row, what_next in _with_next_steps(content):
        seen = Text(escape.text(row["detail"]))
        if what_next:
            seen.append(f"\n→ {escape.text(what_next)}", style="bold")
        outcome = Text(row["outcome"], style=STYLES[row["outcome"]])
        table.add_row(outcome, row["name"], f"{row['seconds']:.1f}", seen)
    return table


def _with_next_steps(content: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str | None]]:
    """Each row with what to do next, which is said once of rows behind each other that want the same."""
    before = None
    for row in content["rows"]:
        step = row["next_step"]
        yield row, "as above" if step and step == before else step
        before = step


def _head(content: Mapping[str, Any]) -> str:
    return f"inferprof verify: {content['gpu'] or 'no GPU'}, {content['machine']}, {content['started']}"


def _end(content: Mapping[str, Any]) -> str:
    """`12 pass, 0 fail, 17 not here, in 83 s; to send back, in the same folder: verify.bundle.zip`."""
    counts = Counter(row["outcome"] for row in content["rows"])
    counted = ", ".join(f"{counts[outcome]} {outcome}" for outcome in STYLES)
    bundle = f"; {content['bundle']}" if "bundle" in content else ""
    return f"{counted}, in {content['seconds']:.0f} s{bundle}"
