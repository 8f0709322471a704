"""A comparison of two studies as text: first what is not comparable, then each case under its whole name."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from inferprof.compare import TIMES, CaseComparison, Comparison, Difference
from inferprof.units import NS_PER_MS

MEASURE_AGAIN = (
    "Measure A and B again, with more rounds or a longer budget_s: neither passed nor failed is exit code 3."
)
NO_ACCURACY = "not compared, no graph has it on both sides"
UNLISTED = 4
"""Such cases that are named."""
WIDTH = 100
"""Of all lines but the names of cases, which stay whole."""


def render(comparison: Comparison) -> str:
    """The comparison as text: first what is not comparable, then what a side lacks, the cases, and the outcome."""
    parts = [
        f"Comparison of A and B\n=====================\nA: {comparison.a}\nB: {comparison.b}",
        _differences(comparison.differences),
        *_lacking(comparison.cases),
        *_alone(comparison),
        *_unlisted(comparison.unlisted),
        *("\n".join(_wrapped(f"Not compared: {why}", "", "  ")) for why in comparison.unread),
        "\n".join(_wrapped(f"{TIMES}.", "", "")),
        "\n".join(line for case in comparison.cases for line in _case(case)),
        _outcome(comparison),
    ]
    return "\n\n".join(parts) + "\n"


def _differences(differences: Sequence[Difference]) -> str:
    if not differences:
        return "A and B were measured under the same recorded conditions."
    lines = ["Not the same in A and B. A ratio may be due to it:"]
    for difference in differences:
        lines += _wrapped(f"{difference.what}: {difference.a} | {difference.b}", "  - ", "    ")
    return "\n".join(lines)


def _lacking(cases: Sequence[CaseComparison]) -> Iterator[str]:
    """The cases that only the other side has."""
    for side, other in (("A", "B"), ("B", "A")):
        names = [f"  - {case.case}" for case in cases if case.note == f"only in {other}"]
        if names:
            yield "\n".join([f"{side} lacks {len(names)} of {other}'s cases:", *names])


def _alone(comparison: Comparison) -> Iterator[str]:
    """How many cases the variants leave out."""
    if comparison.alone and comparison.asked.variants:
        cases = "1 case is" if comparison.alone == 1 else f"{comparison.alone} cases are"
        pair = " and ".join(comparison.asked.variants)
        yield f"{cases} left out, which no study here runs in both variants, {pair}."


def _unlisted(cases: Sequence[str]) -> Iterator[str]:
    """The cases that no study asked for any more: what stands in a folder is compared."""
    if cases:
        listed = ", ".join(cases[:UNLISTED]) + (" and more" if len(cases) > UNLISTED else "")
        said = (
            f"{len(cases)} of these cases are in no cases.csv here: earlier studies or searches left them: {listed}"
        )
        yield "\n".join(_wrapped(said, "", "  "))


def _case(compared: CaseComparison) -> Iterator[str]:
    """The name, what was measured, and what the verdict rests on and what to beware of."""
    yield str(compared.case)
    ratio = compared.ratio
    if ratio is None:
        yield f"  {compared.verdict}"
    else:
        yield (
            f"  {ratio.verdict}: B/A {ratio.estimate:.3f} ({ratio.low:.3f} to {ratio.high:.3f}), "
            f"A {_milliseconds(ratio.a)} ms, B {_milliseconds(ratio.b)} ms by {compared.boundary}"
        )
    for reason in compared.reasons:
        yield from _wrapped(reason, "    ", "    ")


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def _milliseconds(ns: float) -> str:
    """Four significant digits, zeros included: `10.00`."""
    return f"{ns / NS_PER_MS:#.4g}".rstrip(".")


def _outcome(comparison: Comparison) -> str:
    """How many of each verdict, and what the exit code is about."""
    verdicts = [case.verdict for case in comparison.cases]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in sorted(set(verdicts)))
    also = "none broke" if comparison.asked.allow_missing else "none broke, none is missing"
    named = comparison.failures or comparison.undecided
    gate = "FAILED by" if comparison.failures else "UNDECIDED by" if named else "passed."
    fidelity = comparison.fidelity
    accuracy = f"{len(fidelity.lost)} lost of {fidelity.compared} in both" if fidelity.compared else NO_ACCURACY
    return "\n".join(
        [
            f"{len(verdicts)} case{'' if len(verdicts) == 1 else 's'}: {counts}.",
            *_wrapped(f"Gate of accuracy (no graph fails in B alone): {accuracy}.", "", "  "),
            *(line for lost in fidelity.lost for line in _wrapped(": ".join(lost), "  - ", "    ")),
            f"Gate of times (no case slower by {comparison.asked.threshold:.1%} or more, {also}): {gate}",
            *(f"  - {case.case}{_at_most(case)}" for case in named),
            *_left_open(comparison, [case for case in comparison.cases if case.verdict == "undecided"]),
            *([MEASURE_AGAIN] if comparison.undecided else []),
        ]
    )


def _at_most(compared: CaseComparison) -> str:
    """How slow a case may be, by its interval; nothing where that is not known."""
    return f": B/A {compared.ratio.estimate:.3f}, at most {compared.ratio.high:.3g}" if compared.ratio else ""


def _left_open(comparison: Comparison, undecided: Sequence[CaseComparison]) -> Iterator[str]:
    """How many undecided cases can't be slower by their intervals; how many others the gate says nothing of, and how
    large the largest of them may be."""
    beyond = 1 + comparison.asked.threshold
    harmless = [case for case in undecided if case.ratio and case.ratio.high < beyond]
    if harmless:
        yield f"Undecided, but by no interval slower beyond the threshold: {len(harmless)}."
    named = [*comparison.failures, *comparison.undecided]
    cases = [case for case in undecided if case not in harmless and case not in named]
    if not cases:
        return
    rated = [(case.ratio.high, case.case) for case in cases if case.ratio]
    parts = [f"the largest may be B/A {high:.3g} ({case})" for high, case in sorted(rated)[-1:]]
    parts += [f"{len(cases) - len(rated)} without any ratio"] if len(rated) < len(cases) else []
    yield f"Left open by noise, {len(cases)} undecided: {'; '.join(parts)}."
