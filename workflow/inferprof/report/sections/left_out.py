"""The documents that are there and were left out."""

from __future__ import annotations

from collections.abc import Sequence

from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Text
from inferprof.report.section import Section


def build(evidence: Evidence) -> Sequence[Block]:
    """The files that are left out since inferprof does not write such."""
    return tuple(Text(str(document.damage), "item", "warn") for document in evidence.damaged)


SECTION = Section(
    name="left_out",
    title="Files left out",
    place=20,
    build=build,
    needs=("damaged",),
)
