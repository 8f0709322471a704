"""Evidence to report: the sections in their order, each of them contained if it fails."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterable, Sequence

from inferprof import registry
from inferprof.errors import UserError, failure_of, without_exit
from inferprof.report import incomplete, machines, sources
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Card, Figure, Report, SectionContent, Table, Text, Widget
from inferprof.report.section import Section, sections


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
    return sources.linked(report, evidence)


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
