"""The table of verify: as text for verify.txt and pipes, and drawn for a terminal."""

from __future__ import annotations

import importlib.util
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from inferprof import escape

if TYPE_CHECKING:
    from rich.table import Table

STYLES: Final = {"pass": "green", "fail": "bold red", "not here": "yellow"}
"""Outcome → how it is drawn, in the order in which they are counted."""


def render(content: Mapping[str, Any]) -> str:
    """verify.json as lines: a row each, with what was seen, and below it what to do."""
    lines = [_head(content), ""]
    for row, next_step in _with_next_steps(content):
        lines.append(f"{row['outcome']:8}  {row['name']:26} {row['seconds']:5.1f} s  {row['detail']}")
        if next_step:
            lines.append(f"{'':46}→ {next_step}")
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
    for row, next_step in _with_next_steps(content):
        seen = Text(escape.text(row["detail"]))
        if next_step:
            seen.append(f"\n→ {escape.text(next_step)}", style="bold")
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
    """`12 pass, 0 fail, 17 not here, in 83 s; send back verify.bundle.zip`."""
    counts = Counter(row["outcome"] for row in content["rows"])
    counted = ", ".join(f"{counts[outcome]} {outcome}" for outcome in STYLES)
    bundle = f"; to send back, in the same folder: {content['bundle']}" if "bundle" in content else ""
    return f"{counted}, in {content['seconds']:.0f} s{bundle}"
