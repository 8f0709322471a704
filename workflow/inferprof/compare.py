"""Two studies, case by case: what is not comparable, then ratios with intervals and verdicts. A gate for CI.

A and B are results folders, whole or of one machine, or bundles or tars of them. Ratios are time of B / time of A.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from inferprof import compare_sides, stats
from inferprof.case import THRESHOLD, Case
from inferprof.compare_sides import Fidelity
from inferprof.documents.record import Boundary as Loop
from inferprof.documents.record import Record
from inferprof.errors import UserError
from inferprof.plugins import Boundary
from inferprof.tables import gate
from inferprof.units import NS_PER_MS

TIMES = (
    "Times of A and B are geometric means of the rounds' medians. B/A is their quotient, with the 95 % interval of "
    "the rounds' ratios; of one round, of its samples"
)
"""What stands above a table of ratios."""
UNDECIDED = 3
"""The exit code of a gate that is neither passed nor failed; 2 is bad input."""

Rounds = dict[int, Record]
"""A case's records by round."""
Damaged = Mapping[tuple[str, str], str]
"""(machine, case) → what is wrong with its files that can't be read as records."""


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
    ratio: stats.Ratio | None = None
    note: str = ""
    unrated: Literal["broke", "missing", "not compared", "not readable", "undecided"] = "not compared"
    """What stands in place of a verdict; A measured the case where B `broke` on it or it is `missing` in B."""

    @property
    def verdict(self) -> str:
        """The ratio's verdict, or what is in its place."""
        return self.ratio.verdict if self.ratio else self.unrated

    @property
    def reasons(self) -> list[str]:
        """What the verdict rests on, and what to beware of."""
        return [reason for reason in (self.ratio.reason if self.ratio else "", self.note) if reason]


@dataclass(frozen=True)
class Asked:
    """What is compared, and by which rule it passes."""

    threshold: float = THRESHOLD
    allow_missing: bool = False
    """Whether B may lack cases that A measured: it was a smaller study. Otherwise its jobs may have crashed."""
    strict: bool = False
    """Whether each case has to be shown not to be slower beyond the threshold."""
    changed_options: bool = False
    """Whether cases whose options differ are compared."""
    variants: tuple[str, str] | None = None
    """Compare A's cases of the first variant with B's of the second, whatever their options, and no others."""


@dataclass(frozen=True)
class Comparison:
    """The result of comparing two studies: a gate that is failed, undecided or passed."""

    a: str
    b: str
    differences: tuple[Difference, ...]
    cases: tuple[CaseComparison, ...]
    asked: Asked = Asked()
    fidelity: Fidelity = compare_sides.NONE_COMPARED
    unlisted: tuple[str, ...] = ()
    """Compared cases that no study of A or B has, where their folders hold studies."""
    unread: tuple[str, ...] = ()
    """What is wrong with files of A and B that are neither records nor could be read: accuracies are not compared."""
    alone: int = 0
    """Cases of one of the variants that no study runs with the other."""

    @property
    def failures(self) -> list[CaseComparison]:
        """The cases that the gate fails by."""
        bad = {"slower", "broke"} if self.asked.allow_missing else {"slower", "broke", "missing"}
        return [case for case in self.cases if case.verdict in bad]

    @property
    def undecided(self) -> list[CaseComparison]:
        """The undecided cases that the gate does not pass by: those that are probably slower beyond the threshold,
        since 1 lies outside of the interval, so that noise does not explain them, and those that can't be read.
        `strict`: all that may be."""
        lost = [case for case in self.cases if case.verdict == "not readable"]
        cases = [case for case in self.cases if case.verdict == "undecided"]
        beyond = 1 + self.asked.threshold
        if self.asked.strict:
            return [*lost, *(case for case in cases if case.ratio is None or case.ratio.high >= beyond)]
        return [*lost, *(c for c in cases if c.ratio and c.ratio.low > 1 and c.ratio.estimate >= beyond)]


def compare(a: Path, b: Path, asked: Asked = Asked()) -> Comparison:
    """Compare two results folders or archives. Raises UserError where one holds no records or machines don't pair."""
    of_a, of_b, alone = compare_sides.read(a), compare_sides.read(b), 0
    if asked.variants:
        of_a, of_b, alone = compare_sides.of_variants(of_a, of_b, asked.variants)
    compared = compare_records(of_a.records, of_b.records, (str(a), str(b)), asked, (of_a.damaged, of_b.damaged))
    left_over = tuple(sorted({*of_a.unlisted, *of_b.unlisted}))
    unread = (*of_a.unread, *of_b.unread)
    fidelity = compare_sides.fidelity(of_a, of_b)
    return replace(compared, fidelity=fidelity, unlisted=left_over, unread=unread, alone=alone)


def exit_code(comparison: Comparison) -> int:
    """1 where a case of B is slower beyond the threshold, failed or is missing, or a graph is accurate in A alone;
    3 where one may be slower, which its measurements do not decide, or can't be read; else 0."""
    if comparison.failures or comparison.fidelity.lost:
        return 1
    return UNDECIDED if comparison.undecided or comparison.unread else 0


def compare_records(
    a: Sequence[Record],
    b: Sequence[Record],
    names: tuple[str, str] = ("A", "B"),
    asked: Asked = Asked(),
    damaged: tuple[Damaged, Damaged] = ({}, {}),
) -> Comparison:
    """Compare two lists of records, of one machine each or of the same machines.

    Raises UserError where they have no case in common: a gate that compares nothing must not pass.
    """
    _require_paired_machines(a, b)
    one_machine = len(_machines(a)) == 1
    rounds_a, rounds_b = _by_case(a, one_machine), _by_case(b, one_machine)
    lost_a, lost_b = (_lost(of_side, one_machine) for of_side in damaged)
    if not {*rounds_a, *lost_a} & {*rounds_b, *lost_b}:
        raise UserError(f"{names[0]} and {names[1]} have no case in common, so there is nothing to compare")
    keys = sorted({*rounds_a, *lost_a, *rounds_b, *lost_b})
    cases = [
        _compare_readable(
            key[1], rounds_a.get(key, {}), rounds_b.get(key, {}), asked, (lost_a.get(key), lost_b.get(key))
        )
        for key in keys
    ]
    return Comparison(*names, tuple(_differences(a, b)), tuple(cases), asked)


def _require_paired_machines(a: Sequence[Record], b: Sequence[Record]) -> None:
    of_a, of_b = _machines(a), _machines(b)
    if (len(of_a), len(of_b)) != (1, 1) and of_a != of_b:
        raise UserError(
            f"A holds {', '.join(sorted(of_a))} and B {', '.join(sorted(of_b))}: "
            "machines can't be paired; give one machine of each, results/MACHINE"
        )


def _machines(records: Sequence[Record]) -> set[str]:
    return {record.machine for record in records}


def _by_case(records: Sequence[Record], one_machine: bool) -> dict[tuple[str, Case], Rounds]:
    """Records by machine (where there are several) and case, then by round."""
    by_case: dict[tuple[str, Case], Rounds] = {}
    for record in records:
        key = "" if one_machine else record.machine, Case(*record.case.path.split("/"))
        by_case.setdefault(key, {})[record.round] = record
    return by_case


def _lost(damaged: Damaged, one_machine: bool) -> dict[tuple[str, Case], str]:
    """The same keys → what is wrong with files of these cases."""
    return {("" if one_machine else machine, Case.from_path(path)): why for (machine, path), why in damaged.items()}


def _compare_readable(
    case: Case, a: Rounds, b: Rounds, asked: Asked, lost: tuple[str | None, str | None]
) -> CaseComparison:
    """A case, by the rounds that both sides have where files of one can't be read."""
    why = "; ".join(f"{side}: {reason}" for side, reason in zip("AB", lost, strict=True) if reason)
    if why and not a.keys() & b.keys():
        return CaseComparison(case, note=why, unrated="not readable")
    compared = _compare_case(case, a, b, asked)
    return replace(compared, note="; ".join(filter(None, (compared.note, why))))


def _compare_case(case: Case, a: Rounds, b: Rounds, asked: Asked) -> CaseComparison:
    failures = {side: _failure(rounds) for side, rounds in (("A", a), ("B", b))}
    lost = a and failures["A"] is None
    if not a or not b:
        note = f"only in {'A' if a else 'B'}"
        return CaseComparison(case, note=note, unrated="missing" if lost else "not compared")
    if any(failures.values()):
        note = "; ".join(f"{side} failed: {reason}" for side, reason in failures.items() if reason)
        if failures["A"] == failures["B"]:
            note = f"A and B failed: {failures['A']}"
        return CaseComparison(case, note=note, unrated="broke" if lost else "not compared")
    options = _require_same_work(case, list(a.values()), list(b.values()), asked)
    common = sorted(a.keys() & b.keys())
    boundary = _boundary([a[i] for i in common] + [b[i] for i in common])
    if not common or boundary is None:
        lacking = "round" if not common else "boundary that both measured"
        raise UserError(f"{case}: A and B have no {lacking} in common, so that they can't be compared")
    samples_a, samples_b = ([_samples(side[i], boundary) for i in common] for side in (a, b))
    notes = [*options, *_rounds_lacking(a, b), *_cautions(list(a.values()), list(b.values()))]
    ratio = stats.ratio(samples_a, samples_b, asked.threshold)
    if ratio.reason != stats.IDENTICAL:
        counts = {"A": sum(map(len, samples_a)), "B": sum(map(len, samples_b))}
        if few := [f"{side}: {why}" for side, count in counts.items() if (why := gate.too_few(count))]:
            return CaseComparison(case, boundary, note="; ".join(few), unrated="undecided")
        doubts = [(side, _doubt([rounds[i] for i in common], boundary)) for side, rounds in (("A", a), ("B", b))]
        ratio = _gated(ratio, doubts, far=stats.far_apart(samples_a, samples_b))
        if compare_sides.on_cpu(case, [*a.values(), *b.values()]):
            ratio = compare_sides.beyond(ratio, list(a.values()), list(b.values()))
    return CaseComparison(case, boundary, ratio, "; ".join(notes))


def _gated(ratio: stats.Ratio, doubts: Sequence[tuple[str, str | None]], *, far: bool) -> stats.Ratio:
    """A ratio that calls nothing faster or the same by a measurement in doubt, unless both are so far apart that no
    doubt can turn it. Slower stays: a gate for CI must not pass because its measurement is bad."""
    why = [f"{side}: {doubt}" for side, doubt in doubts if doubt]
    if not why:
        return ratio
    if far or ratio.verdict in ("slower", "undecided"):
        return replace(ratio, reason="; ".join([*why, ratio.reason]))
    return replace(ratio, verdict="undecided", reason=f"not called {ratio.verdict} since {'; '.join(why)}")


def _doubt(records: Sequence[Record], boundary: Boundary) -> str | None:
    """gate.doubt of a side's rounds."""
    loops: list[Loop] = [getattr(record.boundaries, boundary) for record in records]
    hosts = [record.host for record in records if record.host]
    took, on_cpu = (sum(sum(getattr(host, name)) for host in hosts) for name in ("yardstick_ns", "yardstick_cpu_ns"))
    waited = max(0.0, 1 - on_cpu / took) if took else None
    return gate.doubt([(bool(loop.settled), stats.drifted(loop.samples_ns or ())) for loop in loops], waited)


def _rounds_lacking(a: Rounds, b: Rounds) -> Iterator[str]:
    """Which rounds of the other a side does not have."""
    for name, own, other in (("A", a, b), ("B", b, a)):
        if lacking := sorted(other.keys() - own.keys()):
            yield f"{name} lacks round{'' if len(lacking) == 1 else 's'} {', '.join(map(str, lacking))}"


def _require_same_work(case: Case, a: Sequence[Record], b: Sequence[Record], asked: Asked) -> list[str]:
    """Which options differ where they may. Raises UserError where records of a case are not of the same work: a ratio
    would say nothing of it."""
    refused = f"{case}: A and B were measured with other {{}}, so that they can't be compared"
    fed = [record.inputs for record in (*a, *b) if record.inputs]
    if any(inputs != fed[0] for inputs in fed):
        raise UserError(refused.format("inputs"))
    placed = all(record.placement for record in (*a, *b))
    options = [record.options | ({"placement": record.placement} if placed else {}) for record in (*a, *b)]
    of_a, of_b = options[: len(a)], options[len(a) :]
    if any(of_round != side[0] for side in (of_a, of_b) for of_round in side):
        raise UserError(f"{case}: its rounds were measured with different options; measure it again")
    names = sorted({*of_a[0], *of_b[0]})
    differ = [
        f"{name} {of_a[0].get(name, 'not set')} | {of_b[0].get(name, 'not set')}"
        for name in names
        if of_a[0].get(name) != of_b[0].get(name)
    ]
    if differ and not (asked.changed_options or asked.variants):
        raise UserError(
            f"{refused.format('options')}: {', '.join(differ)}. --changed-options compares them all the same"
        )
    return [f"options: {', '.join(differ)}"] if differ else []


def _failure(rounds: Rounds) -> str | None:
    """Why the case failed in one of its rounds; None where all are measured."""
    return next((record.failure for record in rounds.values() if record.failure), None)


def _boundary(records: Sequence[Record]) -> Boundary | None:
    """What GPUs are compared by where all records have it, and what anything is compared by otherwise."""
    candidates: tuple[Boundary, ...] = ("device", "end_to_end")
    return next((b for b in candidates if all(_samples(record, b) for record in records)), None)


def _samples(record: Record, boundary: Boundary) -> Sequence[float]:
    """ns; none where the boundary was not measured."""
    entry: Loop | None = getattr(record.boundaries, boundary, None)
    return (entry and entry.samples_ns) or ()


def _cautions(a: Sequence[Record], b: Sequence[Record]) -> Iterator[str]:
    """What may spoil the ratio of a case."""
    for name, records in (("A", a), ("B", b)):
        gauges = [record.telemetry.summary for record in records if record.telemetry and record.telemetry.summary]
        reasons = sorted({reason for summary in gauges for reason in summary.throttle_reasons})
        if reasons:
            yield f"{name} throttled ({', '.join(reasons)})"
        if any(summary.other_processes for summary in gauges):
            yield f"{name} shared the GPU"
    outputs = [{name: output.sha256 for name, output in record.outputs.items()} for record in (*a, *b)]
    if any(other != outputs[0] for other in outputs):
        yield "outputs differ"
    replayed = all(record.protocol.get("graph") for record in (*a, *b))
    if not replayed and (slower := compare_sides.slower(a, b)):
        yield slower


def _differences(a: Sequence[Record], b: Sequence[Record]) -> Iterator[Difference]:
    """Each condition whose values are not the same in A and in B."""
    of_a, of_b = compare_sides.conditions(a), compare_sides.conditions(b)
    for what in sorted(of_a.keys() | of_b.keys()):
        left, right = (", ".join(sorted(side.get(what, {"none"}))) for side in (of_a, of_b))
        if left != right:
            yield Difference(what, left, right)
    if slower := compare_sides.slower(a, b):
        sides = (f"{compare_sides.yardstick(side) / NS_PER_MS:.3g} ms" for side in (a, b))
        yield Difference(f"the host's yardstick ({slower}: what waits for launches too)", *sides)
