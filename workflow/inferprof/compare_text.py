"""A comparison of two studies as text of at most 100 columns: first what is not comparable."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Literal

from inferprof.compare import NS_PER_MS, CaseComparison, Comparison, Difference

WIDTH = 100


def render(comparison: Comparison) -> str:
    """The comparison as text of at most 100 columns: first what is not comparable."""
    parts = [
        f"Comparison of A and B\n=====================\nA: {comparison.a}\nB: {comparison.b}",
        _render_differences(comparison.differences),
        _render_cases(comparison.cases),
        _render_outcome(comparison),
    ]
    return "\n\n".join(parts) + "\n"


def _render_differences(differences: Sequence[Difference]) -> str:
    if not differences:
        return "A and B were measured under the same recorded conditions."
    lines = ["Not the same in A and B, so that a ratio may be due to it:"]
    for difference in differences:
        text = f"{difference.what}: {difference.a} | {difference.b}"
        lines += textwrap.wrap(text, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    return "\n".join(lines)


def _render_cases(cases: Sequence[CaseComparison]) -> str:
    """The table, and under it what its verdicts rest on.

    Rich draws it: it shares out the width and folds what is too long instead of cutting it.
    """
    import rich.box
    import rich.console
    import rich.table

    reasons = list(dict.fromkeys(reason for case in cases for reason in _reasons(case)))
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for heading in ("case", "by", "A ms", "B ms", "B/A", "95 % interval", "verdict", "because"):
        justify: Literal["right", "left"] = "right" if heading in ("A ms", "B ms", "B/A") else "left"
        table.add_column(heading, justify=justify, overflow="fold")
    for case in cases:
        table.add_row(*_cells(case), " ".join(f"[{reasons.index(reason) + 1}]" for reason in _reasons(case)))
    out = io.StringIO()
    # Without a height, Rich takes the size of a "dumb" terminal instead of the width given.
    console = rich.console.Console(file=out, width=WIDTH, height=25, color_system=None, markup=False, highlight=False)
    console.print(table)
    lines = [line.rstrip() for line in out.getvalue().strip("\n").splitlines()]
    for number, reason in enumerate(reasons, start=1):
        lines += textwrap.wrap(f"[{number}] {reason}", WIDTH, initial_indent="  ", subsequent_indent="      ")
    return "\n".join(lines)


def _reasons(compared: CaseComparison) -> list[str]:
    """What a verdict rests on, and what to beware of."""
    return [reason for reason in (compared.ratio.reason if compared.ratio else "", compared.note) if reason]


def _cells(compared: CaseComparison) -> list[str]:
    """The columns from the case to the verdict."""
    ratio = compared.ratio
    if ratio is None or compared.a_median is None or compared.b_median is None:
        return [str(compared.case), "", "", "", "", "", compared.verdict]
    return [
        str(compared.case),
        str(compared.boundary),
        _milliseconds(compared.a_median),
        _milliseconds(compared.b_median),
        f"{ratio.estimate:.3f}",
        f"{ratio.low:.3f} to {ratio.high:.3f}",
        ratio.verdict,
    ]


def _milliseconds(ns: float) -> str:
    """Four significant digits, zeros included: `10.00`."""
    return f"{ns / NS_PER_MS:#.4g}".rstrip(".")


def _render_outcome(comparison: Comparison) -> str:
    """How many of each verdict, and what the exit code is about."""
    verdicts = [case.verdict for case in comparison.cases]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in sorted(set(verdicts)))
    bad = [str(case.case) for case in comparison.failures]
    gate = f"FAILED by {', '.join(bad)}" if bad else "passed"
    also = "none broke" if comparison.allow_missing else "none broke, none is missing"
    return "\n".join(
        textwrap.wrap(f"{len(verdicts)} case{'' if len(verdicts) == 1 else 's'}: {counts}.", WIDTH)
        + textwrap.wrap(f"Gate (no case slower by {comparison.threshold:.1%} or more, {also}): {gate}.", WIDTH)
    )
