"""What holds each case back: what comes first, the verdict on each case, and the findings behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from inferprof.case import Case
from inferprof.documents.diagnosed import Diagnosis, Finding, Gain, Ranked, Total
from inferprof.findings import OF_OTHERS
from inferprof.report.common import CASE_COLUMNS, both_ends, case_cells, few, in_percent, name_of
from inferprof.report.diagnosed import Diagnosed, diagnosed, measured, sentence_of, verdict_of
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, number, without_number, words
from inferprof.report.numbers import significant, three_digits
from inferprof.report.section import section
from inferprof.tables.records import CASE_KEY
from inferprof.units import NS_PER_MS
from inferprof.words import counted

TOP: Final = 3
"""Findings of a case on the page; all of them are in the CSV."""
NO_SHARE: Final = "the case has no total that this could be a share of"
NO_OWN_TIME: Final = "it costs throughput, and no time of one inference; or how much time is not known"
NO_GAIN: Final = "no bound of the gain is known"
CAPTURE_ALL: Final = "`captures: all`, or `snakemake tables`"
_ASKED: Final = re.compile(r"(\w+(?:(?: or | and )\w+)*) under `profilers:`")
"""How checks name the profilers that they need."""
WHOLE: Final = "all"
"""In place of a part of a case that a finding is about."""
NO_FINDING: Final = "nothing found"
SHARE_AND_GAIN: Final = (
    Column("share_percent", "share %", "number"),
    Column("gain_low_percent", "gain %", "number"),
    Column("gain_high_percent", "to %", "number"),
)
FIRST_COLUMNS: Final = (
    Column("model", "model"),
    Column("check", "comes first"),
    Column("cases", "cases", "number"),
    Column("example", "such as"),
    *SHARE_AND_GAIN,
    Column("advice", "what to do"),
    Column("sentence", "verdict", hidden=True),
)
VERDICT_COLUMNS: Final = (
    *CASE_COLUMNS,
    Column("resource", "held back by"),
    *SHARE_AND_GAIN,
    Column("sentence", "verdict", hidden=True),
    Column("of", "of", hidden=True),
)
FINDING_COLUMNS: Final = (
    *CASE_COLUMNS,
    Column("rank", "#", "number"),
    Column("check", "check"),
    Column("subject", "what"),
    *SHARE_AND_GAIN,
    Column("bottleneck", "eats", hidden=True),
    Column("gain_low_ms", "gain ms", "number", hidden=True),
    Column("gain_high_ms", "to ms", "number", hidden=True),
    Column("confidence", "sure"),
    Column("tool", "told by", hidden=True),
    Column("reason", "reason", hidden=True),
    Column("advice", "advice", hidden=True),
    Column("evidence", "numbers", hidden=True),
)
ANSWER_COLUMNS: Final = (
    *CASE_COLUMNS,
    Column("level", "level"),
    Column("check", "check"),
    Column("answer", "answer"),
    Column("reason", "reason"),
)
NO_SHARE_AND_GAIN: Final = (without_number(""),) * len(SHARE_AND_GAIN)
FIRST_NOTE: Final = (
    "Share and gain are those of that finding in the case named; the verdict on it in words: csv/first_findings.csv."
)
VERDICT_NOTE: Final = (
    "Share: of the case's end_to_end median, or of what else its sentence names. Gain: of all its findings together, "
    "between what is sure and what is possible at most; the same time counts once, so that it is never more than all."
)
FINDING_NOTE: Final = (
    "Ranked by what a finding may gain at most, or takes where no gain is known; a rule of thumb (sure: low) counts "
    "a quarter. A cause stands before the symptom that it explains. Findings of one kernel, or of one "
    "kind of waiting, are about the same time: their gains do not add up. Reason, advice and numbers: "
    "csv/findings.csv; what was clear or not assessed: csv/check_answers.csv."
)


@section("verdicts", "What holds each case back", place=30, needs=("diagnoses",))
def build(evidence: Evidence) -> Sequence[Block]:
    """What comes first, verdicts, findings, and what could not be assessed. Empty where no case was diagnosed."""
    seen = diagnosed(evidence)
    if not seen:
        return ()
    verdicts = tuple(_verdict(case, document) for case, document in seen)
    every = [(case, _findings(case, document)) for case, document in seen]
    findings = tuple(row for _, rows in every for row in rows)
    of_measured = measured(evidence)
    by_finding = tuple(_by_finding(evidence, of_measured))
    title = f"What comes first in {counted(len(of_measured), 'case')}, with one case each"
    blocks: list[Block] = [Table("first_findings", title, FIRST_COLUMNS, by_finding, FIRST_NOTE, groups=1)]
    title = "The verdict on each case"
    blocks.append(Table("verdicts", title, VERDICT_COLUMNS, verdicts, VERDICT_NOTE, groups=2, csv_only=not findings))
    if findings:
        shown = tuple(row for _, rows in every for row in rows[:TOP])
        title = f"The {TOP} first findings of each case"
        blocks.append(Table("top_findings", title, FINDING_COLUMNS, shown, FINDING_NOTE, groups=5))
        blocks.append(Table("findings", "Every finding", FINDING_COLUMNS, findings, csv_only=True))
    answers = tuple(_answers(seen))
    blocks.append(
        Table("check_answers", "The answer of every check on every case", ANSWER_COLUMNS, answers, csv_only=True)
    )
    return (*blocks, *_cautions(of_measured), *_lacking(evidence, of_measured))


def _by_finding(evidence: Evidence, seen: list[Diagnosed]) -> Iterator[tuple[Cell, ...]]:
    """What to work on first, a row per model and check with one of its cases; last those without a finding."""
    by_model: dict[str, dict[str, list[Diagnosed]]] = {}
    for case, document in seen:
        by_model.setdefault(case["model"], {}).setdefault(_first_check(document), []).append((case, document))
    for model, by_check in by_model.items():
        for check, cases in sorted(by_check.items(), key=lambda item: (item[0] == NO_FINDING, -len(item[1]))):
            case, document = cases[0]
            first = _first(document)
            yield (
                *map(words, (model, check)),
                number(len(cases), str(len(cases))),
                words(f"{name_of(case)} {case['shape']}"),
                *(_of_finding(first.finding, document.total or None) if first else NO_SHARE_AND_GAIN),
                words(_with_captures(evidence, case, first.finding.advice) if first else ""),
                words(sentence_of(document)),
            )


def _first(document: Diagnosis) -> Ranked | None:
    groups = verdict_of(document).groups
    return groups[0].findings[0] if groups else None


def _first_check(document: Diagnosis) -> str:
    first = _first(document)
    return first.check if first else NO_FINDING


def _title(case: Mapping[str, Any]) -> str:
    return f"{case['model']} {name_of(case)} {case['shape']}"


# --- rows ------------------------------------------------------------------------------------------------------


def _verdict(case: Mapping[str, Any], document: Diagnosis) -> tuple[Cell, ...]:
    verdict, total = verdict_of(document), document.total or None
    return (
        *case_cells(case),
        words(verdict.groups[0].resource if verdict.groups else NO_FINDING),
        *_share_and_gain(document),
        words(verdict.sentence),
        words(total.of if total else "nothing that is known"),
    )


def _share_and_gain(document: Diagnosis) -> list[Cell]:
    """What the first group of findings takes, and what all of them may save."""
    verdict, total = verdict_of(document), document.total or None
    if not verdict.groups:
        return list(NO_SHARE_AND_GAIN)
    share = _share(verdict.groups[0].share, NO_OWN_TIME if total else NO_SHARE)
    return [share, *_gain_percent(verdict.gain, total)]


def _findings(case: Mapping[str, Any], document: Diagnosis) -> list[tuple[Cell, ...]]:
    ranked = [entry for group in verdict_of(document).groups for entry in group.findings]
    total = document.total or None
    return [_finding(case, rank, entry, total) for rank, entry in enumerate(ranked, 1)]


def _finding(case: Mapping[str, Any], rank: int, entry: Ranked, total: Total | None) -> tuple[Cell, ...]:
    finding = entry.finding
    gain = finding.gain
    in_ms = [gain.low_ns / NS_PER_MS, gain.high_ns / NS_PER_MS] if gain else [None, None]
    return (
        *case_cells(case),
        number(rank, str(rank)),
        words(entry.check),
        both_ends(finding.subject or WHOLE),
        *_of_finding(finding, total),
        words(finding.bottleneck),
        *(missing(NO_GAIN) if value is None else number(value, three_digits(value)) for value in in_ms),
        words(finding.confidence),
        words(finding.source.split(",")[0]),
        words(finding.reason),
        words(finding.advice),
        words("; ".join(f"{name} {significant(value)}" for name, value in finding.evidence.items())),
    )


def _of_finding(finding: Finding, total: Total | None) -> tuple[Cell, ...]:
    """What one finding takes and what it alone may save, in percent."""
    share = _share(finding.share, NO_OWN_TIME if total else NO_SHARE)
    return (share, *_gain_percent(finding.gain, total))


def _share(share: float | None, reason: str) -> Cell:
    return missing(reason) if share is None else in_percent(share)


def _gain_percent(gain: Gain | None, total: Total | None) -> list[Cell]:
    if gain is None or total is None:
        return [missing(NO_GAIN)] * 2
    return [in_percent(bound / total.ns) for bound in (gain.low_ns, gain.high_ns)]


def _answers(seen: list[Diagnosed]) -> Iterator[tuple[Cell, ...]]:
    for case, document in seen:
        for answer in document.answers or ():
            reason = answer.reason or " ".join(finding.reason for finding in answer.findings)
            yield (*case_cells(case), *map(words, (answer.level, answer.check, answer.verdict)), words(reason))


def _cautions(seen: list[Diagnosed]) -> Iterator[Text]:
    """What costs trust in the numbers, or device memory: each check once, with its first case."""
    by_check: dict[str, dict[str, Finding]] = {}
    for case, document in seen:
        for caution in verdict_of(document).cautions:
            by_check.setdefault(caution.check, {}).setdefault(_title(case), caution.finding)
    for check, cases in by_check.items():
        first, finding = next(iter(cases.items()))
        what = ": ".join(part for part in (first, finding.subject, finding.reason) if part)
        which = f"{len(cases)} of {len(seen)} cases, e.g. " if len(cases) > 1 else ""
        rest = " All are in csv/check_answers.csv." if len(cases) > 1 else ""
        yield Text(f"{check}: {which}{what} To do: {finding.advice}{rest}", "item", "warn")


def _lacking(evidence: Evidence, seen: list[Diagnosed]) -> Iterator[Text]:
    """What the checks needed and did not have, each with how many checks of how many cases it kept."""
    kept: dict[str, set[tuple[str, str]]] = {}
    for case, document in seen:
        for answer in document.answers or ():
            if answer.verdict == "not assessed" and answer.reason not in OF_OTHERS:
                reason = _with_captures(evidence, case, answer.reason)
                kept.setdefault(reason, set()).add((_title(case), answer.check))
    for reason, pairs in sorted(kept.items(), key=lambda item: -len(item[1]))[:TOP]:
        checks = few(sorted({check for _, check in pairs}))
        cases = len({case for case, _ in pairs})
        yield Text(f"Not assessed in {cases} of {len(seen)} cases, {checks}: {reason}.", "item")


def _with_captures(evidence: Evidence, case: Mapping[str, Any], reason: str) -> str:
    """What a check needs or advises; of profilers that the config names already, how they come to watch the case."""
    config = evidence.config.content
    if config is None or config.captures == "all" or not evidence.selected:
        return reason
    own, refused = Case(*(case[key] for key in CASE_KEY)), evidence.refused_profilers.content or {}

    def left_out(named: re.Match[str]) -> str:
        tools = re.split(" or | and ", named[1])
        asked = [tool in config.profilers and tool not in refused for tool in tools]
        enough = all(asked) if " and " in named[1] else any(asked)
        if not enough or any(evidence.watched(tool, own) for tool in tools):
            return named[0]
        return f"{named[1]}, which by `captures: winners` watches other cases: {CAPTURE_ALL}"

    return _ASKED.sub(left_out, reason)
