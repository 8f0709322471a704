"""Evidence to report: which sections there are, and in which order."""

from __future__ import annotations

from inferprof.report.evidence import Evidence
from inferprof.report.model import Report, Section
from inferprof.report.sections import (
    accuracy,
    answer,
    engines,
    environment,
    latency,
    method,
    outcomes,
    speed_up,
    use,
)


def compose(evidence: Evidence, plots: Section) -> Report:
    """The whole report: the answer first, the evidence behind it after."""
    sections = (
        answer.section(evidence),
        plots,
        speed_up.section(evidence),
        latency.section(evidence),
        use.section(evidence),
        accuracy.section(evidence),
        engines.section(evidence),
        outcomes.refused(evidence),
        outcomes.failed(evidence),
        outcomes.checks(evidence),
        environment.section(evidence),
        method.method(evidence),
        method.files(evidence),
    )
    return Report(
        title=f"inferprof: study {evidence.study}",
        subtitle=f"Machine {evidence.machine}. Paths are relative to results/.",
        sections=tuple(section for section in sections if section.blocks),
    )
