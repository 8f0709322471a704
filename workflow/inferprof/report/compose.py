"""Evidence to report: which sections there are, and in which order."""

from __future__ import annotations

from inferprof.report.evidence import Evidence
from inferprof.report.model import Report, Section
from inferprof.report.sections import (
    accuracy,
    answer,
    counters,
    engines,
    environment,
    fallback,
    formats,
    gpu,
    graphs,
    incomplete,
    kernel_pairs,
    kernels,
    latency,
    layers,
    method,
    models,
    nodes,
    operators,
    outcomes,
    roofline,
    second_clock,
    sparsity,
    speed_up,
    tiles,
    timeline,
    use,
    waterfall,
)


def compose(evidence: Evidence, plots: Section) -> Report:
    """The whole report: the answer first, the evidence behind it after."""
    return _report(evidence, f"inferprof: study {evidence.study}", [answer.section(evidence), plots])


def compose_partial(evidence: Evidence, planned: bool) -> Report:
    """The same after jobs broke: first of all what is missing. `planned`: whether there is a cases.csv."""
    title = f"inferprof: study {evidence.study}, INCOMPLETE"
    return _report(evidence, title, [incomplete.section(evidence, planned), answer.section(evidence)])


def _report(evidence: Evidence, title: str, first: list[Section]) -> Report:
    sections = (
        *first,
        speed_up.section(evidence),
        latency.section(evidence),
        use.section(evidence),
        waterfall.section(evidence),
        roofline.section(evidence),
        tiles.section(evidence),
        timeline.section(evidence),
        kernels.section(evidence),
        counters.section(evidence),
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
        method.files(evidence),
    )
    return Report(
        title=title,
        subtitle=f"Machine {evidence.machine}. Paths are relative to results/.",
        sections=tuple(section for section in sections if section.blocks),
    )
