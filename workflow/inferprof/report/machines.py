"""One study on several machines: the fastest case on each, and each machine against the first, case by case."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from inferprof import compare
from inferprof.compare import CaseComparison, Comparison
from inferprof.documents import Environment
from inferprof.errors import UserError
from inferprof.machine.hardware import SLUG_PACKAGES
from inferprof.report import winner
from inferprof.report.common import CASE_COLUMNS, case_cells, factor
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, SectionContent, Table, Text, missing, number, words
from inferprof.report.numbers import milliseconds, significant
from inferprof.report.winner import Winner
from inferprof.tables.roofs import gpu_in_use

FASTEST = (
    Column("model", "model"),
    Column("shape", "shape"),
    Column("machine", "machine"),
    Column("boundary", "by"),
    Column("case", "fastest"),
    Column("median_ms", "median ms", "number"),
)
OUTCOMES = ("ok", "refused", "failed", "broken")
NOTE = (
    f"A is {{a}}, B is {{b}}. {compare.TIMES}: above 1, {{b}} is slower. "
    "GPU against GPU is compared by device, anything else by end_to_end."
)


def fastest(machines: Sequence[Evidence]) -> SectionContent:
    """The fastest case of each model and shape on each machine, whose accuracy does not fail."""
    pairs = [(evidence, model) for evidence in machines for model in evidence.models]
    winners = [(evidence.machine, best) for evidence, model in pairs for best in winner.find(evidence, model)]
    models = list(dict.fromkeys(model for _, model in pairs))
    # A stable sort: machines stay in the order of the config.
    winners.sort(key=lambda pair: (models.index(pair[1].row["model"]), pair[1].row["batch"], pair[1].shape))
    cells = [_fastest(machine, best) for machine, best in winners]
    if not cells:
        return SectionContent("Answer", (Text("No machine measured a case.", "headline", "fail"),))
    title = "The fastest case on each machine whose accuracy does not fail"
    return SectionContent("Answer", (Table("fastest", title, FASTEST, tuple(cells), groups=2),))


def _fastest(machine: str, best: Winner) -> tuple[Cell, ...]:
    names = (best.row["model"], best.shape, machine, best.boundary, best.name)
    return (*map(words, names), number(best.median_ms, significant(best.median_ms)))


def described(machines: Sequence[Evidence]) -> SectionContent:
    """What each machine is, what became of its cases, and where its own report is."""
    facts = [_facts(evidence) for evidence in machines]
    rows = tuple((words(name), *(words(machine_facts[name]) for machine_facts in facts)) for name in facts[0])
    columns = (Column("fact", "fact"), *(Column(evidence.machine, evidence.machine) for evidence in machines))
    return SectionContent("Machines", (Table("machines", "", columns, rows),))


def against_first(machines: Sequence[Evidence]) -> list[SectionContent]:
    """A section per further machine: what was not the same, then its cases against those of the first."""
    first, *others = machines
    return [_pair(first, other) for other in others]


def _facts(evidence: Evidence) -> dict[str, str]:
    content = evidence.environment.content or Environment(gpus=[])
    gpu = gpu_in_use(content)
    facts = {
        "GPU": gpu and gpu.name,
        "CPU": content.cpu and content.cpu.model,
        "driver": content.driver.get("version"),
        **{package: content.packages.get(package) for package in SLUG_PACKAGES},
    }
    return {
        **{name: fact if isinstance(fact, str) else "none" for name, fact in facts.items()},
        **{f"cases {outcome}": str(len(evidence.of(outcome))) for outcome in OUTCOMES},
        "report": f"reports/{evidence.study}/REPORT.txt",
    }


def _pair(a: Evidence, b: Evidence) -> SectionContent:
    title = f"{b.machine} against {a.machine}"
    if silent := [evidence.machine for evidence in (a, b) if evidence.records.empty]:
        return SectionContent(
            title, (Text(f"Not compared: nothing was measured on {' and '.join(silent)}.", mark="warn"),)
        )
    of_a, of_b = (list(evidence.records["record"]) for evidence in (a, b))
    try:
        comparison = compare.compare_records(of_a, of_b, (a.machine, b.machine))
    except UserError as error:
        return SectionContent(title, (Text(f"Not compared: {error}.", mark="warn"),))
    rows = tuple(_row(case) for case in comparison.cases)
    note = NOTE.format(a=a.machine, b=b.machine)
    name = f"{b.machine}_against_{a.machine}"
    table = Table(name, "", _columns(a, b), rows, note, groups=2)
    return SectionContent(title, (*_conditions(comparison), table, *_undecided(comparison)))


def _conditions(comparison: Comparison) -> list[Block]:
    """What a ratio may be due to besides the machine: compare's check."""
    ours = [difference for difference in comparison.differences if difference.what != "machine"]
    if not ours:
        return [Text("Measured under the same recorded conditions.")]
    items = [Text(f"{difference.what}: {difference.a} | {difference.b}", "item") for difference in ours]
    return [Text(f"Not the same on {comparison.a} and {comparison.b}, so that a ratio may be due to it:"), *items]


def _undecided(comparison: Comparison) -> list[Text]:
    """Why cases are undecided."""
    cases = [case for case in comparison.cases if case.verdict == "undecided"]
    return [Text(f"Undecided: {case.case}: {'; '.join(case.reasons)}.", "item") for case in cases]


def _columns(a: Evidence, b: Evidence) -> tuple[Column, ...]:
    return (
        *CASE_COLUMNS,
        Column("boundary", "by"),
        Column(f"{a.machine}_ms", "A ms", "number"),
        Column(f"{b.machine}_ms", "B ms", "number"),
        Column("ratio", "B/A", "number"),
        Column("interval", "±", "number"),
        Column("verdict", "verdict"),
        Column("note", "note", hidden=True),
    )


def _row(case: CaseComparison) -> tuple[Cell, ...]:
    names: Mapping[str, Any] = vars(case.case)
    if case.ratio is None:
        lacking = missing(case.note)
        return (*case_cells(names), words("–"), *[lacking] * 4, words(case.verdict), words(case.note))
    case_ratio = case.ratio
    ends = (case_ratio.low, case_ratio.high) if math.isfinite(case_ratio.low + case_ratio.high) else (None, None)
    return (
        *case_cells(names),
        words(case.boundary),
        number(case_ratio.a / 1e6, milliseconds(case_ratio.a)),
        number(case_ratio.b / 1e6, milliseconds(case_ratio.b)),
        *factor(case_ratio.estimate, *ends),
        words(case_ratio.verdict),
        words("; ".join(case.reasons)),
    )
