"""The answers as a report beside a results folder that holds their tables: the same page as a study's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from inferprof import report
from inferprof.case import outcomes_csv
from inferprof.diagnosis import run
from inferprof.diagnosis.times import percent
from inferprof.explain import against, against_answer, answer
from inferprof.explain.against import Difference
from inferprof.explain.foreign import MACHINE, STUDY, UNKNOWN, Foreign
from inferprof.explain.parts import parts_of
from inferprof.files import write_document, write_text, written_whole
from inferprof.report import compose, evidence, interactive
from inferprof.report.model import Block, Card, Column, Report, SectionContent, Table, Text, number, words
from inferprof.report.section import sections
from inferprof.tables import records
from inferprof.units import NS_PER_MS

SECTIONS: Final = (
    *("verdicts", "timeline", "collectives", "kernels", "formats", "layers", "nodes", "operators"),
    *("fallback", "counters", "rules"),
)
"""Those of a study's sections that captures alone have something for."""
WHERE: Final = (
    Column("case", "capture"),
    Column("of", "of"),
    Column("part", "goes to"),
    Column("ms", "ms", "number"),
    Column("percent", "%", "number"),
)


DIFFERENCE: Final = (
    Column("group", "what"),
    Column("a_ms", "A ms", "number"),
    Column("b_ms", "B ms", "number"),
    Column("change_ms", "change ms", "number"),
)


def write(cases: Sequence[Foreign], out: Path) -> Path:
    """Write the tables, diagnoses and the report of these cases; REPORT.txt. Raises UserError where `out` can't be
    written to."""
    folder = out / "reports" / STUDY
    cases = list(_named_apart(cases))
    for case in cases:
        _write_tables(case, out)
    write_text(folder / "cases.csv", outcomes_csv(MACHINE, ((case.case, "run", "") for case in cases)))
    of_study = evidence.load(out, STUDY, MACHINE, records.read_cases(folder / "cases.csv"), None)
    chosen = sorted((section for name, section in sections().items() if name in SECTIONS), key=lambda s: s.place)
    contents = (compose.content_of(section, of_study) for section in chosen)
    page = Report(
        title="inferprof: explain",
        subtitle=f"{len(cases)} capture{'s' if len(cases) > 1 else ''}. Paths are relative to the folder of --out.",
        sections=(_answers(cases), *(_as_told(content, cases) for content in contents if content.blocks)),
    )
    return report.write_files(compose.with_widgets(page, *interactive.begin(of_study, folder)()), folder)


def write_difference(difference: Difference, out: Path) -> Path:
    """Write the comparison as a report, with every group of it; REPORT.txt."""
    lines = tuple((entry.label, entry.text) for entry in against_answer.entries(difference))
    blocks: list[Block] = [Card(against.title(difference), lines, listed=True)]
    ordered = sorted(against.lines(difference), key=lambda line: -abs(line[2] - line[1]))
    rows = tuple(
        (words(name), *(number(ns / NS_PER_MS, f"{ns / NS_PER_MS:+,.4g}") for ns in (was, now, now - was)))
        for name, was, now in ordered
    )
    blocks.append(Table("difference", "All groups: their changes add up to the difference", DIFFERENCE, rows))
    content = SectionContent("Difference", tuple(blocks))
    page = Report(title="inferprof: explain", subtitle="Two captures of one work.", sections=(content,))
    return report.write_files(page, out / "reports" / STUDY)


def _named_apart(cases: Sequence[Foreign]) -> Iterator[Foreign]:
    """The cases with names of their own, where two files have one."""
    seen: dict[str, int] = {}
    for case in cases:
        seen[case.case.model] = number = seen.get(case.case.model, 0) + 1
        name = case.case.model if number == 1 else f"{case.case.model}-{number}"
        renamed = dataclasses.replace(case.case, model=name)
        yield dataclasses.replace(case, case=renamed, rows=case.rows.assign(model=name))


def _write_tables(case: Foreign, out: Path) -> None:
    for tool, rows in case.rows.groupby("tool"):
        with written_whole(out / MACHINE / "table" / str(tool) / f"{case.case.path}.parquet") as partial:
            rows.to_parquet(partial)
    document = run.document(case.frames, list(case.answers))
    document |= {"case": dataclasses.asdict(case.case), "verdict": run.plain(case.verdict)}
    document |= {"total": run.plain(case.total)}
    write_document(out / MACHINE / "diagnosis" / f"{case.case.path}.json", "diagnosis", document)


def _as_told(content: SectionContent, cases: Sequence[Foreign]) -> SectionContent:
    """A study's section without those parts of a case that no capture tells: they are in its CSV files alone."""
    untold = {"shape", "precision", "variant", "example"}
    untold |= {"backend"} if all(case.case.backend == UNKNOWN for case in cases) else set()
    blocks: list[Block] = []
    for block in content.blocks:
        if isinstance(block, Table):
            hidden = (dataclasses.replace(c, hidden=c.hidden or c.key in untold) for c in block.columns)
            block = dataclasses.replace(block, columns=tuple(hidden))
        elif isinstance(block, Text):
            text = block.text
            for case in cases:
                text = text.replace(str(case.case), case.case.model)
            block = dataclasses.replace(block, text=text)
        blocks.append(block)
    return dataclasses.replace(content, blocks=tuple(blocks))


def _answers(cases: Sequence[Foreign]) -> SectionContent:
    """The answers as they stand on the terminal, and where the time goes as a table."""
    blocks: list[Block] = []
    rows = []
    for case in cases:
        lines = tuple((entry.label, entry.text) for entry in answer.entries(case))
        blocks.append(Card(", ".join(case.names), lines, listed=True))
        if whole_and_parts := parts_of(case):
            of, whole, parts = whole_and_parts
            rows += [
                (
                    *(words(text) for text in (case.case.model, of, part)),
                    number(ns / NS_PER_MS, f"{ns / NS_PER_MS:,.4g}"),
                    number(
                        100 * ns / whole if whole else 0.0, percent(ns / whole if whole else 0.0).removesuffix(" %")
                    ),
                )
                for part, ns in sorted(parts.items(), key=lambda item: -item[1])
                if ns
            ]
    if rows:
        blocks.append(
            Table("where", "Where the time goes: parts that add up to the whole", WHERE, tuple(rows), groups=2)
        )
    return SectionContent("Answer", tuple(blocks))
