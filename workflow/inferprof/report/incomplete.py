"""What a report lacks because jobs broke."""

from __future__ import annotations

from inferprof.report.broken import jobs
from inferprof.report.common import EXAMPLES, few, path_of
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, SectionContent, Text
from inferprof.report.numbers import plural
from inferprof.tables.records import rows_of

JOBS = 200
"""Broken jobs that are listed."""


def section(evidence: Evidence, planned: bool) -> SectionContent:
    """The cases without a record, with the end of their logs, and the files about the models that are not there."""
    blocks: list[Block] = [
        Text("Jobs broke, so this is not the report. Run the same command again: what is done is kept.")
    ]
    if not planned:
        blocks.append(Text("cases.csv is not written yet, so only cases with a record are known.", mark="warn"))
    every_job = jobs(evidence.results, evidence.machine, evidence.planned)
    if every_job:
        blocks.append(Text(f"{plural(len(every_job), 'job')} broke; the end of each log:"))
        blocks += [Text(f"{job.log}: {job.reason}", "item", "fail") for job in every_job[:JOBS]]
        if len(every_job) > JOBS:
            blocks.append(Text(f"and {len(every_job) - JOBS} more under results/log/", "item"))
    broken = rows_of(evidence.of("broken"))
    if broken:
        blocks.append(Text(f"{plural(len(broken), 'case')} without a record:"))
        blocks += [Text(f"{path_of(row)}: {row['reason']}", "item", "fail") for row in broken[:EXAMPLES]]
        if len(broken) > EXAMPLES:
            blocks.append(Text(f"and {len(broken) - EXAMPLES} more, each with its reason under Failed cases", "item"))
    every = evidence.documents.values()
    absent = [
        document.file for document in every if document.content is None and document.lacking == f"no {document.file}"
    ]
    if absent:
        blocks.append(Text(f"{plural(len(absent), 'file')} about the models missing: {few(absent)}."))
    return SectionContent("What is missing", tuple(blocks))
