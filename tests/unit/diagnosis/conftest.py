"""Real captures and records as frames of a case, and made-up changes to them."""

from __future__ import annotations

import dataclasses
import functools
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.made_records import document, made, plain

from inferprof.case import Case
from inferprof.diagnosis import frames
from inferprof.documents import Record
from inferprof.files import read_json
from inferprof.findings import Documents, Frames
from inferprof.profilers import nsys
from inferprof.tables import records, schema
from inferprof.tables.trace.kernel_compare import as_iterations

CASE = Case("vit", "fp16", "ort_cuda", "default", "b8")
NO_RECORDS = records.frame_of([], [*records.RECORD_KEY, "status", "reason", "record"])
DATA = Path(__file__).parents[2] / "data"
MACHINE = "h100-80gb-hbm3-sm90-93fb0a94"

Captured = Callable[..., Frames]
Change = Callable[[dict[str, Any]], None]
Measured = Callable[..., Frames]


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], pd.DataFrame]:
    """Name of a capture of tests/data/nsys → its table."""

    @functools.cache
    def of(name: str) -> pd.DataFrame:
        path = tmp_path_factory.mktemp("nsys") / f"{name}.sqlite"
        path.write_bytes(lzma.decompress((DATA / f"nsys/{name}.sqlite.xz").read_bytes()))
        return nsys.read(path)

    return of


@pytest.fixture(scope="session")
def captured(table: Callable[[str], pd.DataFrame]) -> Captured:
    """Name of a capture, and the range that is an iteration → its frames, without a bare run; made once, not to be
    changed."""

    @functools.cache
    def of(name: str, iteration: str = "iteration") -> Frames:
        rows = schema.of_case(as_iterations(table(name), iteration), MACHINE, CASE)
        return frames.of_tables(MACHINE, CASE, frames.peers_of(NO_RECORDS), rows)

    return of


def changed(record: Record, change: Change) -> Record:
    """The record that an edit of its content gives."""
    content = plain(record)
    change(content)
    return made(content)


@functools.cache
def recorded(model: str) -> pd.DataFrame:
    """The records of a model in tests/data/records, read once."""
    return records.read(DATA / "records", records.of_model(DATA / "records", MACHINE, model))


def with_documents(known: Documents, **contents: Any) -> Documents:
    """The same with other contents of some, each as a test gives it: made_records.document."""
    made_of: dict[Any, Any] = contents
    given = {kind: content and document(kind, content) for kind, content in made_of.items()}
    return dataclasses.replace(known, **given)


@pytest.fixture(scope="session")
def measured(table: Callable[[str], pd.DataFrame]) -> Measured:
    """Path of a case of tests/data/records (of one H100; up to 96 samples of each loop, and none of telemetry) → its
    frames, with the profile of that name or none. `change` edits its record; `documents` replace files."""

    def of(
        path: str, change: Change = lambda record: None, *, profile: str | None = None, **documents: Any
    ) -> Frames:
        case = Case.from_path(path)
        found = recorded(case.model).copy()
        read = zip(found["record"], found[records.CASE_KEY].itertuples(index=False, name=None), strict=True)
        edited: Any = [changed(record, change) if Case(*own) == case else record for record, own in read]
        found["record"] = edited
        found["status"] = [record.status for record in found["record"]]
        known = with_documents(frames.documents_of(DATA / "records", MACHINE, case), **documents)
        rows = table(profile) if profile else pd.DataFrame(columns=list(schema.COLUMNS))
        profiles = schema.of_case(rows, MACHINE, case)
        return frames.of_tables(MACHINE, case, frames.peers_of(found), profiles, known)

    return of


@pytest.fixture
def environment() -> Any:
    """The environment of that H100, to be changed."""
    return read_json(DATA / "records" / MACHINE / "environment.json")


@pytest.fixture
def bandwidth() -> Any:
    """The bandwidth of its link, to be changed."""
    return read_json(DATA / "records" / MACHINE / "bandwidth.json")
