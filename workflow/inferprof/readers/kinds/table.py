"""Tables of inferprof itself: what a study, or explain, made of a capture."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from inferprof.readers.kind import Capture, Kind


def read(path: Path) -> Capture:
    """The rows as they are, and of which case. Raises UserError where it is no table of one tool's capture."""
    from inferprof.errors import UserError
    from inferprof.tables import schema
    from inferprof.tables.records import CASE_KEY

    rows = schema.read_table(path)
    tools, cases = rows["tool"].unique().tolist(), rows[list(CASE_KEY)].drop_duplicates()
    if len(tools) != 1 or len(cases) != 1:
        raise UserError(f"{path} holds {len(tools)} tools' rows of {len(cases)} cases: give a table of one of each")
    case = cases.iloc[0]
    failure = schema.reason_in(rows)
    ran = [f"inferprof's table of {tools[0]}", "/".join(str(part) for part in case)]
    settings = {name: str(case[name]) for name in CASE_KEY}
    return Capture(tools[0], ran, rows=rows, settings=settings, failure=failure, runtime=str(case["backend"]))


TABLE: Final = Kind(
    name="table",
    title="a table of inferprof",
    recognises=lambda head: head.raw.startswith(b"PAR1"),
    read=read,
    rank=2,
)
