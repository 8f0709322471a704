"""The file behind each number of a table, by the columns that say what its row is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from inferprof.report.common import name_of, sources_of
from inferprof.report.evidence import Evidence
from inferprof.report.model import Cell, Report, Table
from inferprof.tables.records import CASE_KEY

FASTEST = ("model", "shape", "case")
"""How the answer names a case: `case` is its precision/backend/variant."""
DOCUMENTS = {"accuracy": "accuracy", "audit": "audit", "models": "convert"}
"""Tables of a row per model and format → which of its documents they are made of."""


def linked(report: Report, evidence: Evidence) -> Report:
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
    rows = tuple(_row(table, row, _file(table.name, row, places, files)) for row in table.rows)
    return dataclasses.replace(table, rows=rows)


def _file(
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


def _row(table: Table, row: tuple[Cell, ...], file: str | None) -> tuple[Cell, ...]:
    if file is None:
        return row
    return tuple(
        dataclasses.replace(cell, file=file)
        if column.kind == "number" and cell.file is None and not cell.missing
        else cell
        for column, cell in zip(table.columns, row, strict=True)
    )
