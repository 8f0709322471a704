"""Evidence to report: the sections in their order, each of them contained if it fails, with the files behind them."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterable, Mapping, Sequence

from inferprof import registry
from inferprof.errors import UserError, failure_of, without_exit
from inferprof.report import incomplete, machines
from inferprof.report.common import name_of, sources_of
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Card, Cell, Figure, Report, SectionContent, Table, Text, Widget
from inferprof.report.section import Section, sections
from inferprof.tables.records import CASE_KEY


def compose(evidence: Evidence) -> Report:
    """The whole report but for its plots: the answer first, the evidence behind it after."""
    return _report(evidence, f"inferprof: study {evidence.study}", ())


def compose_partial(evidence: Evidence, planned: bool) -> Report:
    """The same after jobs broke: first of all what is missing. `planned`: whether there is a cases.csv."""
    title = f"inferprof: study {evidence.study}, INCOMPLETE"
    return _report(evidence, title, (incomplete.section(evidence, planned),))


def compose_so_far(evidence: Evidence) -> Report:
    """The same while the study runs: first of all what is still to come."""
    return _report(evidence, f"inferprof: study {evidence.study}, SO FAR", (incomplete.to_come(evidence),))


def compose_machines(study: str, every: Sequence[Evidence]) -> Report:
    """The report above those of several machines: one beside the other."""
    return Report(
        title=f"inferprof: study {study} on {len(every)} machines",
        subtitle=f"Machines {', '.join(evidence.machine for evidence in every)}. Paths are relative to results/.",
        sections=(machines.fastest(every), machines.described(every), *machines.against_first(every)),
    )


def content_of(section: Section, evidence: Evidence) -> SectionContent:
    """What a section makes of the evidence: no block where something that it needs is empty."""
    if unknown := [name for name in section.needs if not hasattr(evidence, name)]:
        raise UserError(f"the section {section.name} needs {unknown[0]}, which is no field of Evidence")
    lacking = any(len(getattr(evidence, name)) == 0 for name in section.needs)
    own = evidence.apart() if registry.from_outside(section.build) else evidence
    built = () if lacking else section.build(own)
    blocks = tuple(built) if isinstance(built, Iterable) else (built,)
    if wrong := [block for block in blocks if not isinstance(block, Block)]:
        raise UserError(
            f"the section {section.name} gave {reprlib.repr(wrong[0])}, which is no block of report.model"
        )
    return SectionContent(section.title, blocks, section.place)


def _contained(section: Section, evidence: Evidence, tables: set[str]) -> SectionContent:
    """The same, or that the section failed: the others are worth reading without it. `tables`: the names of those
    that are there already, each of which has a file."""
    try:
        with without_exit():
            content = content_of(section, evidence)
        names = [block.name for block in content.blocks if isinstance(block, Table)]
        if twice := [name for count, name in enumerate(names) if name in tables or name in names[:count]]:
            raise ValueError(f"two tables are named {twice[0]}")
        tables.update(names)
        return content
    except Exception as error:
        said = Text(f"This section could not be made: {failure_of(error)}.", mark="fail")
        return SectionContent(section.title, (said,), section.place)


def _report(evidence: Evidence, title: str, first: Sequence[SectionContent]) -> Report:
    ordered = sorted(sections().values(), key=lambda section: section.place)
    tables: set[str] = set()
    made = [_contained(section, evidence, tables) for section in ordered]
    report = Report(
        title=title,
        subtitle=f"Machine {evidence.machine}. Paths are relative to results/.",
        sections=(*first, *(content for content in made if content.blocks)),
    )
    return _with_files(report, evidence)


def _with(figures: Sequence[Block], blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The plots of a section before its blocks, but behind its answers."""
    place = next((index for index, block in enumerate(blocks) if not isinstance(block, Card)), len(blocks))
    return (*blocks[:place], *figures, *blocks[place:])


def with_plots(report: Report, plots: SectionContent) -> Report:
    """Each plot at the head of its section; those without one, and what was not drawn, in a section of their own."""
    titles = {section.title for section in report.sections}
    placed = [block for block in plots.blocks if isinstance(block, Figure) and block.section in titles]
    rest = tuple(block for block in plots.blocks if block not in placed)
    own = (dataclasses.replace(plots, blocks=rest),) if rest else ()
    return _placed(dataclasses.replace(report, sections=(*report.sections, *own)), placed)


def with_widgets(report: Report, widgets: Sequence[Widget], data: str) -> Report:
    """Each widget at the head of its section, which is made where there is none, and the data of all of them."""
    titles = {section.title for section in report.sections}
    own = [SectionContent(w.section, (), w.place) for w in widgets if w.section not in titles]
    return _placed(dataclasses.replace(report, sections=(*report.sections, *own), data=data), widgets)


def _placed(report: Report, blocks: Sequence[Figure | Widget]) -> Report:
    """The blocks in their sections, all of which in their order."""
    sections = [
        dataclasses.replace(
            section, blocks=_with([block for block in blocks if block.section == section.title], section.blocks)
        )
        for section in report.sections
    ]
    return dataclasses.replace(report, sections=tuple(sorted(sections, key=lambda section: section.place)))


FASTEST = ("model", "shape", "case")
"""How the answer names a case: `case` is its precision/backend/variant."""
DOCUMENTS = {"accuracy": "accuracy", "audit": "audit", "models": "convert"}
"""Tables of a row per model and format → which of its documents they are made of."""


def _with_files(report: Report, evidence: Evidence) -> Report:
    """The report with a file at each number that has none: a profile where a row names its tool, else the records."""
    files = _files(evidence)
    sections = tuple(
        dataclasses.replace(
            section,
            blocks=tuple(_linked(block, files) if isinstance(block, Table) else block for block in section.blocks),
        )
        for section in report.sections
    )
    return dataclasses.replace(report, sections=sections)


def _files(evidence: Evidence) -> dict[tuple[str, ...], str]:
    """What a row may be known by → a file, relative to the results folder."""
    files: dict[tuple[str, ...], str] = {}
    for (_, *case), file in sources_of(evidence).items():
        files[tuple(case)] = file
        names = dict(zip(CASE_KEY, case, strict=True))
        files[(names["model"], names["shape"], name_of(names))] = file
    profiled = evidence.profiles[["machine", "tool", *CASE_KEY]].drop_duplicates()
    for machine, tool, *case in profiled.itertuples(index=False, name=None):
        files[(*case, tool)] = f"{machine}/table/{tool}/{'/'.join(case)}.parquet"
    for (model, precision, kind), document in evidence.documents.items():
        if document.content is not None:
            files[(model, precision, kind)] = document.file
    for (model, precision, shape), cost in evidence.costs.items():
        if cost.content is not None:
            files[(model, precision, shape, "cost")] = cost.file
    return files


def _linked(table: Table, files: Mapping[tuple[str, ...], str]) -> Table:
    places = {column.key: index for index, column in enumerate(table.columns)}
    rows = tuple(_linked_row(table, row, _file_of(table.name, row, places, files)) for row in table.rows)
    return dataclasses.replace(table, rows=rows)


def _file_of(
    name: str, row: tuple[Cell, ...], places: Mapping[str, int], files: Mapping[tuple[str, ...], str]
) -> str | None:
    """The file of a row, or None where its columns do not say what it is about."""

    def known_by(*keys: str) -> tuple[str, ...] | None:
        return tuple(str(row[places[key]].value) for key in keys) if places.keys() >= set(keys) else None

    kinds = (DOCUMENTS[name],) if name in DOCUMENTS else ()
    candidates = (
        ((*CASE_KEY, "tool"), ()),
        (CASE_KEY, ()),
        (FASTEST, ()),
        (("model", "precision", "shape"), ("cost",)),
        (("model", "precision"), kinds),
    )
    for keys, rest in candidates:
        if (names := known_by(*keys)) and (file := files.get((*names, *rest))):
            return file
    return None


def _linked_row(table: Table, row: tuple[Cell, ...], file: str | None) -> tuple[Cell, ...]:
    if file is None:
        return row
    return tuple(
        dataclasses.replace(cell, file=file)
        if column.kind == "number" and cell.file is None and not cell.missing
        else cell
        for column, cell in zip(table.columns, row, strict=True)
    )
