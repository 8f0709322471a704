"""What was not measured, and why: refused, failed and broken cases; self-checks that failed; files left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from inferprof import registry
from inferprof.report.common import CASE_COLUMNS, EXAMPLES, case_cells, path_of
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Mark, Table, Text, words
from inferprof.report.section import section
from inferprof.tables.records import rows_of
from inferprof.words import counted

MEANINGS = {"failed": "failed while measured", "broken": "without a record: their job broke, or has not run"}
LIMIT = 20
"""Rows of failures on the page; the CSV has all."""
REFUSED_COLUMNS = (
    Column("reason", "reason"),
    Column("count", "cases", "number"),
    Column("cases", "which"),
)

REASON_COLUMNS = (*CASE_COLUMNS, Column("reason", "reason"), Column("files", "files", "path", hidden=True))
STAGE_COLUMNS = (Column("file", "file", "path"), Column("reason", "reason"))
CHECK_COLUMNS = (
    *CASE_COLUMNS,
    Column("round", "round", "number"),
    Column("check", "check"),
    Column("detail", "detail"),
    Column("file", "file", "path", hidden=True),
)


@section("refused", "Refused cases", place=320)
def refused(evidence: Evidence) -> Sequence[Block]:
    """Refused cases, grouped by reason: the most frequent first."""
    frame = evidence.of("refused")
    if frame.empty:
        return (Text("No case was refused."),)
    groups = sorted(frame.groupby("reason", sort=False), key=lambda item: -len(item[1]))
    rows = tuple(_refusal(str(reason), group) for reason, group in groups)
    title = f"{counted(len(frame), 'case')} refused before running, by reason; each of them is in cases.csv"
    return (Table("refused", title, REFUSED_COLUMNS, rows),)


@section("failed", "Failed cases", place=330)
def failed(evidence: Evidence) -> Sequence[Block]:
    """Cases that failed while they were measured, and cases whose job broke."""
    blocks: list[Block] = []
    for outcome, meaning in MEANINGS.items():
        frame = evidence.of(outcome)
        if not frame.empty:
            title = f"{counted(len(frame), 'case')} {meaning}"
            blocks.append(Table(outcome, title, REASON_COLUMNS, _reasons(frame, "fail"), groups=2, limit=LIMIT))
    stages = [*_failed_stages(evidence), *_failed_captures(evidence)]
    if stages:
        title = f"{counted(len(stages), 'stage')} without a result"
        blocks.append(Table("failed_stages", title, STAGE_COLUMNS, tuple(stages), limit=LIMIT))
    return tuple(blocks) or (Text("No case failed."),)


def _failed_stages(evidence: Evidence) -> Iterator[tuple[Cell, ...]]:
    """What became of conversions, audits and the like whose documents hold a reason alone."""
    for document in evidence.failed:
        yield words(document.file), words(document.failure, "fail")


def _failed_captures(evidence: Evidence) -> Iterator[tuple[Cell, ...]]:
    """The profilers that saw nothing of a case; Nsight Compute's refusals stand beside its counters."""
    counted = evidence.profiles["tool"].isin(registry.counters())
    rows = evidence.profiles[evidence.profiles["metric"].eq("not_measured") & ~counted]
    for row in rows_of(rows):
        yield words(f"{row['machine']}/capture/{row['tool']}/{path_of(row)}"), words(row["text"], "fail")


@section("self_checks", "Self-checks", place=340)
def checks(evidence: Evidence) -> Sequence[Block]:
    """Self-checks that failed, and those that could not be made; with the number of those that passed."""
    if evidence.checks.empty:
        return (Text("No record holds a self-check."),)
    made = evidence.checks[evidence.checks["passed"].notna()]
    bad = made[~made["passed"].astype(bool)]
    passed = f"{len(made) - len(bad)} of {counted(len(made), 'self-check')} passed"
    blocks: list[Block] = [Text(f"{passed}.")]
    if not bad.empty:
        title = f"{passed}. These did not, so don't trust their cases:"
        rows = tuple(_check(row) for row in rows_of(bad))
        blocks = [Table("failed_checks", title, CHECK_COLUMNS, rows, groups=2, limit=LIMIT)]
    unmade = evidence.checks[evidence.checks["passed"].isna()]
    for (check, why), rows_ in unmade.groupby(["check", "detail"], sort=True):
        blocks.append(Text(f"{check} could not be checked in {counted(len(rows_), 'run')}: {why}", "item", "warn"))
    return blocks


@section("left_out", "Files left out", place=20, needs=("damaged",))
def left_out(evidence: Evidence) -> Sequence[Block]:
    """The files that are left out since inferprof does not write such."""
    return tuple(Text(str(document.damage), "item", "warn") for document in evidence.damaged)


def _refusal(reason: str, group: Any) -> tuple[Cell, ...]:
    """Reason, count, and what the refused cases have in common."""
    return words(reason), Cell(str(len(group)), len(group)), words(common_parts(group))


def common_parts(group: Any) -> str:
    """`vit_tiny, minilm; 6 shapes; fp8; …`: the distinct values of each part; counted beyond EXAMPLES."""
    parts = []
    for column in CASE_COLUMNS:
        values = list(dict.fromkeys(group[column.key]))
        parts.append(", ".join(values) if len(values) <= EXAMPLES else f"{len(values)} {column.key}s")
    return "; ".join(parts)


def _reasons(frame: Any, mark: Mark | None = None) -> tuple[tuple[Cell, ...], ...]:
    return tuple(
        (*case_cells(row), words(row["reason"], mark), words(" ".join(row["files"]))) for row in rows_of(frame)
    )


def _check(row: dict[str, Any]) -> tuple[Cell, ...]:
    number = Cell(str(row["round"]), row["round"])
    return (*case_cells(row), number, words(row["check"], "fail"), words(row["detail"]), words(row["file"]))
