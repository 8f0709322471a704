"""The machine, as `inferprof probe` found it, and how the records say that it was used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Column, Section, Table, Text, words
from inferprof.report.numbers import plural
from inferprof.report.sections.common import few

COLUMNS = (Column("fact", "fact"), Column("value", "value"))
NULL = "not known"


def section(evidence: Evidence) -> Section:
    """Every fact of environment.json, then revisions and start times of the records."""
    blocks: list[Block] = []
    if evidence.environment.content is None:
        blocks.append(Text(f"Not measured: there is no {evidence.environment.file}."))
    else:
        rows = tuple((words(name), words(value)) for name, value in flat(evidence.environment.content))
        blocks.append(Table("environment", f"From {evidence.environment.file}", COLUMNS, rows))
    blocks += _records(evidence)
    return Section("Environment", tuple(blocks))


def flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(dotted name, text) of each leaf; `{value, reason}` is one, and a list of plain values too."""
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and set(value) == {"value", "reason"}:
            yield name, f"{_plain(value['value'])}: {value['reason']}"
        elif isinstance(value, Mapping):
            yield from flat(value, f"{name}.")
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            yield from flat({str(index): item for index, item in enumerate(value)}, f"{name}.")
        elif isinstance(value, list):
            yield name, ", ".join(map(str, value)) or "none"
        else:
            yield name, _plain(value)


def _plain(value: Any) -> str:
    """A leaf in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return NULL if value is None else str(value)


def _records(evidence: Evidence) -> list[Block]:
    """Git revisions and the span of time that the records come from: a stale record shows here."""
    contents = list(evidence.records["content"])
    if not contents:
        return []
    revisions = sorted({str(content["environment"].get("git") or NULL) for content in contents})
    started = sorted(content["started"] for content in contents)
    span = f"started between {started[0]} and {started[-1]}"
    text = f"{plural(len(contents), 'record')}, {span}, at git revision {few(revisions)}."
    blocks: list[Block] = [Text(text)]
    if len(revisions) > 1:
        blocks.append(Text("The records come from different revisions of this code.", mark="warn"))
    return blocks
