"""What a report lacks because jobs broke."""

from __future__ import annotations

from inferprof import selection
from inferprof.report.broken import jobs
from inferprof.report.common import EXAMPLES, few, path_of
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, SectionContent, Text
from inferprof.tables.records import rows_of
from inferprof.words import counted

PARTS = {"model": "models", "precision": "formats", "backend": "runtimes", "variant": "variants", "shape": "shapes"}
"""Part of a case → what the terminal calls several of them."""
JOBS = 200
"""Broken jobs that are listed."""


def to_come(evidence: Evidence) -> SectionContent:
    """What a study still does: the cases without a record, by their parts, or further rounds and captures."""
    measured, waiting = len(evidence.planned), evidence.waiting
    said = f"{measured} of {measured + evidence.to_come()} cases that can run are measured; the study goes on."
    blocks: list[Block] = [Text(said)]
    if waiting is not None and len(waiting):
        parts = "; ".join(f"{name} {', '.join(dict.fromkeys(waiting[part]))}" for part, name in PARTS.items())
        blocks.append(Text(f"To come: {parts}."))
    path = evidence.results / "reports" / evidence.study / selection.NAME
    if path.exists():
        chosen = selection.read(path)
        rounds, captures = (", ".join(sorted(map(str, cases))) for cases in (chosen.repeated, chosen.captured))
        blocks.append(Text(f"Further rounds: {rounds or 'of no case, since they would change no verdict'}."))
        blocks.append(Text(f"Captures: {captures or 'none'}."))
    blocks.append(Text(f"All of it will be in reports/{evidence.study}/REPORT.txt."))
    return SectionContent("What is still to come", tuple(blocks))


def section(evidence: Evidence, planned: bool) -> SectionContent:
    """The cases without a record, with the end of their logs, and the files about the models that are not there."""
    blocks: list[Block] = [
        Text("Jobs broke, so this is not the report. Run the same command again: what is done is kept.")
    ]
    if not planned:
        blocks.append(Text("cases.csv is not written yet, so only cases with a record are known.", mark="warn"))
    every_job = jobs(evidence.results, evidence.machine, evidence.planned)
    if every_job:
        blocks.append(Text(f"{counted(len(every_job), 'job')} broke; the end of each log:"))
        blocks += [Text(f"{job.log}: {job.reason}", "item", "fail") for job in every_job[:JOBS]]
        if len(every_job) > JOBS:
            blocks.append(Text(f"and {len(every_job) - JOBS} more under results/log/", "item"))
    broken = rows_of(evidence.of("broken"))
    if broken:
        blocks.append(Text(f"{counted(len(broken), 'case')} without a record:"))
        blocks += [Text(f"{path_of(row)}: {row['reason']}", "item", "fail") for row in broken[:EXAMPLES]]
        if len(broken) > EXAMPLES:
            blocks.append(Text(f"and {len(broken) - EXAMPLES} more, each with its reason under Failed cases", "item"))
    every = evidence.documents.values()
    absent = [
        document.file for document in every if document.content is None and document.lacking == f"no {document.file}"
    ]
    if absent:
        blocks.append(Text(f"{counted(len(absent), 'file')} about the models missing: {few(absent)}."))
    return SectionContent("What is missing", tuple(blocks))
