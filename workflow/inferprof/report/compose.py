"""Evidence to report: which sections there are, and in which order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from inferprof.report import sources
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Figure, Report, Section
from inferprof.report.sections import (
    accuracy,
    answer,
    counters,
    engines,
    environment,
    fallback,
    fixes,
    formats,
    gpu,
    graph_memory,
    graphs,
    incomplete,
    kernel_pairs,
    kernels,
    latency,
    layers,
    machines,
    method,
    models,
    nodes,
    operators,
    outcomes,
    roofline,
    rules,
    saturation,
    second_clock,
    sparsity,
    speed_ceiling,
    speed_up,
    tiles,
    timeline,
    tuning,
    use,
    verdicts,
    waterfall,
)


def compose(evidence: Evidence) -> Report:
    """The whole report but for its plots: the answer first, the evidence behind it after."""
    return _report(evidence, f"inferprof: study {evidence.study}", [answer.section(evidence)])


def compose_partial(evidence: Evidence, planned: bool) -> Report:
    """The same after jobs broke: first of all what is missing. `planned`: whether there is a cases.csv."""
    title = f"inferprof: study {evidence.study}, INCOMPLETE"
    return _report(evidence, title, [incomplete.section(evidence, planned), answer.section(evidence)])


def compose_machines(study: str, every: Sequence[Evidence]) -> Report:
    """The report above those of several machines: one beside the other."""
    return Report(
        title=f"inferprof: study {study} on {len(every)} machines",
        subtitle=f"Machines {', '.join(one.machine for one in every)}. Paths are relative to results/.",
        sections=(machines.fastest(every), machines.described(every), *machines.against_first(every)),
    )


def _report(evidence: Evidence, title: str, first: list[Section]) -> Report:
    sections = (
        *first,
        incomplete.damaged(evidence),
        verdicts.section(evidence),
        fixes.section(evidence),
        speed_up.section(evidence),
        latency.section(evidence),
        use.section(evidence),
        graph_memory.section(evidence),
        tuning.section(evidence),
        saturation.section(evidence),
        waterfall.section(evidence),
        speed_ceiling.section(evidence),
        roofline.section(evidence),
        tiles.section(evidence),
        timeline.section(evidence),
        kernels.section(evidence),
        counters.section(evidence),
        rules.section(evidence),
        kernel_pairs.section(evidence),
        formats.section(evidence),
        layers.section(evidence),
        sparsity.section(evidence),
        nodes.section(evidence),
        operators.section(evidence),
        fallback.section(evidence),
        gpu.section(evidence),
        models.section(evidence),
        accuracy.section(evidence),
        graphs.section(evidence),
        engines.section(evidence),
        second_clock.section(evidence),
        outcomes.refused(evidence),
        outcomes.failed(evidence),
        outcomes.checks(evidence),
        environment.section(evidence),
        method.method(evidence),
        method.reproduce(evidence),
        method.files(evidence),
    )
    report = Report(
        title=title,
        subtitle=f"Machine {evidence.machine}. Paths are relative to results/.",
        sections=tuple(section for section in sections if section.blocks),
    )
    return sources.linked(report, evidence)


def with_plots(report: Report, plots: Section) -> Report:
    """Each plot at the head of its section; those that have none, and what was not drawn, before Method."""
    wanted: dict[str, list[Block]] = {section.title: [] for section in report.sections}
    rest: list[Block] = []
    for block in plots.blocks:
        (wanted.get(block.section, rest) if isinstance(block, Figure) else rest).append(block)
    placed = [dataclasses.replace(one, blocks=(*wanted[one.title], *one.blocks)) for one in report.sections]
    at = [one.title for one in placed].index(method.TITLE)
    others = [dataclasses.replace(plots, blocks=tuple(rest))] if rest else []
    return dataclasses.replace(report, sections=(*placed[:at], *others, *placed[at:]))
