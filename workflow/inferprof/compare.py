"""Two studies, case by case: what is not comparable, then ratios with intervals and verdicts. A gate for CI.

A and B are results folders, whole or of one machine, or bundles or tars of them. Ratios are time of B / time of A.
"""

from __future__ import annotations

import io
import json
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from inferprof import bundles, stats
from inferprof.case import Case
from inferprof.errors import UserError
from inferprof.plugins import Boundary
from inferprof.tables.records import of_folder

HOSTS_DIFFER = 1 + stats.ONE_ROUND_THRESHOLD
WIDTH = 100
NS_PER_MS = 1e6

Record = Mapping[str, Any]
Rounds = dict[int, Record]
"""A case's records by round."""


@dataclass(frozen=True)
class Difference:
    """A condition that A and B do not share, so that a ratio may be due to it."""

    what: str
    a: str
    b: str


@dataclass(frozen=True)
class CaseComparison:
    """One case of both. Without a ratio, `note` says why; otherwise it says what to beware of."""

    case: Case
    boundary: Boundary | None = None
    a_median: float | None = None
    """ns, over the medians of the rounds."""
    b_median: float | None = None
    ratio: stats.Ratio | None = None
    note: str = ""
    unrated: Literal["broke", "missing", "not compared"] = "not compared"
    """What stands in place of a verdict; A measured the case where B `broke` on it or it is `missing` in B."""

    @property
    def verdict(self) -> str:
        """The ratio's verdict, or what is in its place."""
        return self.ratio.verdict if self.ratio else self.unrated


@dataclass(frozen=True)
class Comparison:
    """The result of comparing two studies."""

    a: str
    b: str
    differences: tuple[Difference, ...]
    cases: tuple[CaseComparison, ...]
    threshold: float
    allow_missing: bool = False
    """Whether B may lack cases that A measured: it was a smaller study. Otherwise its jobs may have crashed."""

    @property
    def failures(self) -> list[CaseComparison]:
        """The cases that the gate fails by."""
        bad = {"slower", "broke"} if self.allow_missing else {"slower", "broke", "missing"}
        return [case for case in self.cases if case.verdict in bad]


def compare(a: Path, b: Path, threshold: float = stats.THRESHOLD, *, allow_missing: bool = False) -> Comparison:
    """Compare two results folders or archives. Raises UserError where one holds no records or machines don't pair."""
    return compare_records(read(a), read(b), (str(a), str(b)), threshold, allow_missing=allow_missing)


def exit_code(comparison: Comparison) -> int:
    """1 where a case of B is slower beyond the threshold, failed or is missing, else 0."""
    return int(bool(comparison.failures))


def read(path: Path) -> list[Record]:
    """The benchmark records under a results folder, or in a bundle or tar archive of one."""
    with bundles.opened(path) as folder:
        folders = sorted(folder.glob("**/benchmark"))
        found: list[Record] = [record for benchmark in folders for record in of_folder(benchmark)]
    if not found:
        raise UserError(
            f"{path} holds no benchmark records; give a results folder, results/MACHINE, a bundle or a tar"
        )
    return found


def compare_records(
    a: Sequence[Record],
    b: Sequence[Record],
    names: tuple[str, str] = ("A", "B"),
    threshold: float = stats.THRESHOLD,
    *,
    allow_missing: bool = False,
) -> Comparison:
    """Compare two lists of records, of one machine each or of the same machines.

    Raises UserError where they have no case in common: a gate that compares nothing must not pass.
    """
    _require_paired_machines(a, b)
    one_machine = len(_machines(a)) == 1
    rounds_a, rounds_b = _by_case(a, one_machine), _by_case(b, one_machine)
    if not rounds_a.keys() & rounds_b.keys():
        raise UserError(f"{names[0]} and {names[1]} have no case in common, so there is nothing to compare")
    keys = sorted(rounds_a.keys() | rounds_b.keys())
    cases = [_compare_case(key[1], rounds_a.get(key, {}), rounds_b.get(key, {}), threshold) for key in keys]
    return Comparison(*names, tuple(_differences(a, b)), tuple(cases), threshold, allow_missing)


def _require_paired_machines(a: Sequence[Record], b: Sequence[Record]) -> None:
    of_a, of_b = _machines(a), _machines(b)
    if (len(of_a), len(of_b)) != (1, 1) and of_a != of_b:
        raise UserError(
            f"A holds {', '.join(sorted(of_a))} and B {', '.join(sorted(of_b))}: "
            "machines can't be paired; give one machine of each, results/MACHINE"
        )


def _machines(records: Sequence[Record]) -> set[str]:
    return {record["machine"] for record in records}


def _by_case(records: Sequence[Record], one_machine: bool) -> dict[tuple[str, Case], Rounds]:
    """Records by machine (where there are several) and case, then by round."""
    found: dict[tuple[str, Case], Rounds] = {}
    for record in records:
        key = "" if one_machine else record["machine"], Case(**record["case"])
        found.setdefault(key, {})[record["round"]] = record
    return found


def _compare_case(case: Case, a: Rounds, b: Rounds, threshold: float) -> CaseComparison:
    failures = {side: _failure(rounds) for side, rounds in (("A", a), ("B", b))}
    lost = a and failures["A"] is None
    if not a or not b:
        note = f"only in {'A' if a else 'B'}"
        return CaseComparison(case, note=note, unrated="missing" if lost else "not compared")
    if any(failures.values()):
        note = "; ".join(f"{side} failed: {reason}" for side, reason in failures.items() if reason)
        return CaseComparison(case, note=note, unrated="broke" if lost else "not compared")
    _require_same_work(case, [*a.values(), *b.values()])
    common = sorted(a.keys() & b.keys())
    boundary = _boundary([a[i] for i in common] + [b[i] for i in common])
    if not common or boundary is None:
        lacking = "round" if not common else "boundary that both measured"
        raise UserError(f"{case}: A and B have no {lacking} in common, so that they can't be compared")
    samples_a, samples_b = ([side[i]["boundaries"][boundary]["samples_ns"] for i in common] for side in (a, b))
    return CaseComparison(
        case,
        boundary,
        a_median=_median_of_medians(samples_a),
        b_median=_median_of_medians(samples_b),
        ratio=stats.ratio(samples_a, samples_b, threshold),
        note="; ".join(_cautions(list(a.values()), list(b.values()))),
    )


def _require_same_work(case: Case, records: Sequence[Record]) -> None:
    """Raise UserError where records of a case are not of the same work: a ratio would say nothing of it."""
    for what in ("options", "placement", "inputs"):
        if len({json.dumps(record[what], sort_keys=True) for record in records if what in record}) > 1:
            raise UserError(f"{case}: A and B were measured with other {what}, so that they can't be compared")


def _failure(rounds: Rounds) -> str | None:
    """Why the case failed in one of its rounds; None where all are measured."""
    return next((str(record["reason"]) for record in rounds.values() if record["status"] != "ok"), None)


def _boundary(records: Sequence[Record]) -> Boundary | None:
    """What GPUs are compared by where all records have it, and what anything is compared by otherwise."""
    candidates: tuple[Boundary, ...] = ("device", "end_to_end")
    return next((b for b in candidates if all("samples_ns" in r["boundaries"].get(b, {}) for r in records)), None)


def _median_of_medians(rounds: Sequence[Sequence[float]]) -> float:
    return stats.summarize([stats.summarize(samples).median for samples in rounds]).median


def _cautions(a: Sequence[Record], b: Sequence[Record]) -> Iterator[str]:
    """What may spoil the ratio of a case."""
    for name, records in (("A", a), ("B", b)):
        summaries = [record.get("telemetry", {}).get("summary", {}) for record in records]
        reasons = sorted({reason for summary in summaries for reason in summary.get("throttle_reasons", [])})
        if reasons:
            yield f"{name} throttled ({', '.join(reasons)})"
        if any(summary.get("other_processes") for summary in summaries):
            yield f"{name} shared the GPU"
        if any(not entry.get("settled", True) for record in records for entry in record["boundaries"].values()):
            yield f"{name} never settled"
    outputs = [{name: digest["sha256"] for name, digest in r.get("outputs", {}).items()} for r in (*a, *b)]
    if any(other != outputs[0] for other in outputs):
        yield "outputs differ"
    replayed = all(record["protocol"].get("graph") for record in (*a, *b))
    if not replayed and (slower := _slower_host(a, b)):
        yield slower


def _differences(a: Sequence[Record], b: Sequence[Record]) -> Iterator[Difference]:
    """Each condition whose values are not the same in A and in B."""
    of_a, of_b = _conditions(a), _conditions(b)
    for what in sorted(of_a.keys() | of_b.keys()):
        left, right = (", ".join(sorted(side.get(what, {"none"}))) for side in (of_a, of_b))
        if left != right:
            yield Difference(what, left, right)
    if slower := _slower_host(a, b):
        sides = (f"{_yardstick(side) / NS_PER_MS:.3g} ms" for side in (a, b))
        yield Difference(f"the host's yardstick ({slower}: what waits for launches too)", *sides)


def _slower_host(a: Sequence[Record], b: Sequence[Record]) -> str:
    """`B's host was 1.45 times as slow`, by yardsticks of one Python; empty where they are alike or not known."""
    before, after = _yardstick(a), _yardstick(b)
    name, times = ("B", after / before) if after > before else ("A", before / after)
    one_python = len({record["environment"].get("python") for record in (*a, *b)}) == 1
    return f"{name}'s host was {times:.2f} times as slow" if one_python and times >= HOSTS_DIFFER else ""


def _yardstick(records: Sequence[Record]) -> float:
    """The median of all readings by their time on a core, ns; NaN where there is none."""
    readings = [ns for record in records for ns in record.get("host", {}).get("yardstick_cpu_ns", [])]
    return stats.summarize(readings).median if readings else math.nan


def _conditions(records: Sequence[Record]) -> dict[str, set[str]]:
    """What the records say of the conditions that they were made under: name → all values."""
    found: dict[str, set[str]] = {}
    for record in records:
        environment = record["environment"]
        gpu = environment.get("gpu") or {}
        conditions = {
            "machine": record["machine"],
            "GPU": gpu.get("name", "none"),
            "driver": gpu.get("driver", "none"),
            "commit": environment.get("git") or "unknown",
            "Python": environment.get("python") or "unknown",
            **{f"package {name}": version for name, version in environment.get("packages", {}).items()},
            **{f"protocol {name}": value for name, value in record["protocol"].items() if name != "graph"},
        }
        for name, value in conditions.items():
            found.setdefault(name, set()).add(str(value))
    rounds = {str(case): 0 for case in (Case(**record["case"]) for record in records)}
    for record in records:
        rounds[str(Case(**record["case"]))] += 1
    found["rounds"] = {str(count) for count in rounds.values()}
    return found


# --- text ------------------------------------------------------------------------------------------------------


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
