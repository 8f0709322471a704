"""The engines: what was built, here and ahead of time for other GPUs, and what the parser said where it failed."""

from __future__ import annotations

import dataclasses

from inferprof.report.evidence import Engine, Evidence
from inferprof.report.model import Cell, Column, Section, Table, Text, words
from inferprof.report.numbers import MIB, mebibytes, significant
from inferprof.report.sections.common import CASE_COLUMNS, few, optional, path_of, scaled

COLUMNS = (
    Column("machine", "for"),
    *CASE_COLUMNS,
    Column("status", "build"),
    Column("mib", "MiB", "number"),
    Column("seconds", "seconds", "number"),
    Column("reason", "reason", hidden=True),
    Column("file", "file", "path", hidden=True),
)


def section(evidence: Evidence) -> Section:
    """The table, then the messages of failed builds, each once."""
    if not evidence.engines:
        return Section(
            "Engines", (Text("No engine was built: none of the cases needs one, or every one was refused."),)
        )
    rows = tuple(tuple(_row(engine)) for engine in evidence.engines)
    by_reason: dict[str, list[str]] = {}
    for engine in evidence.engines:
        if not _ok(engine):
            name = f"{engine.machine} {path_of(dataclasses.asdict(engine.case))}"
            by_reason.setdefault(_reason(engine), []).append(name)
    failed = [Text(f"{few(names)}: {reason}", "item", "fail") for reason, names in by_reason.items()]
    note = "Engines for aot-sm… were compiled ahead of time, for GPUs that need not be here."
    heading = [Text("Builds that failed, with the message of the builder or its parser:")] if failed else []
    body = Table("engines", "", COLUMNS, rows, note, groups=2)
    return Section("Engines", (body, *heading, *failed))


def _ok(engine: Engine) -> bool:
    return bool(engine.build.get("status", "ok") == "ok")


def _reason(engine: Engine) -> str:
    return str(engine.build.get("reason") or "the build gives no reason")


def _row(engine: Engine) -> list[Cell]:
    ok = _ok(engine)
    lacking = "not recorded" if ok else "the build failed"
    case = dataclasses.asdict(engine.case)
    return [
        words(engine.machine),
        *(words(case[column.key]) for column in CASE_COLUMNS),
        Cell("ok", "ok", file=engine.build.file) if ok else Cell("failed", "failed", "fail", file=engine.build.file),
        scaled(engine.build.get("bytes"), MIB, mebibytes, lacking),
        optional(engine.build.get("seconds"), lambda value: significant(value, 3), lacking),
        words("" if ok else _reason(engine)),
        words(engine.build.file),
    ]
