"""Real captures and records as frames of a case, and made-up changes to them."""

from __future__ import annotations

import copy
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from inferprof.case import Case
from inferprof.diagnosis import frames
from inferprof.files import read_json
from inferprof.findings import Frames
from inferprof.profilers import nsys
from inferprof.tables import records, schema
from inferprof.tables.kernel_compare import as_iterations

CASE = Case("vit", "fp16", "ort_cuda", "default", "b8")
NO_RECORDS = records.frame_of([], [*records.RECORD_KEY, "status", "reason", "content"])
DATA = Path(__file__).parents[2] / "data"
MACHINE = "h100-80gb-hbm3-sm90-93fb0a94"

Captured = Callable[..., Frames]
Change = Callable[[dict[str, Any]], None]
Measured = Callable[..., Frames]


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """Name of a capture of tests/data/nsys, and the range that is an iteration → its frames, without a bare run."""
    read: dict[str, pd.DataFrame] = {}

    def of(name: str, iteration: str = "iteration") -> Frames:
        if name not in read:
            path = tmp_path_factory.mktemp("nsys") / f"{name}.sqlite"
            path.write_bytes(lzma.decompress((DATA / f"nsys/{name}.sqlite.xz").read_bytes()))
            read[name] = schema.of_case(nsys.read(path), MACHINE, CASE)
        return frames.of_tables(MACHINE, CASE, NO_RECORDS, as_iterations(read[name], iteration))

    return of


@pytest.fixture
def measured() -> Measured:
    """Path of a case of tests/data/records (one H100; 24 samples of each loop, without the samples of telemetry)
    → its frames, with no profile. `change` edits its record; `documents` replace those on file."""

    def of(path: str, change: Change = lambda record: None, **documents: Any) -> Frames:
        case = Case.from_path(path)
        found = records.read(DATA / "records", records.of_model(DATA / "records", MACHINE, case.model))
        found["content"] = [copy.deepcopy(content) for content in found["content"]]
        for content, *own in found[["content", *records.CASE_KEY]].itertuples(index=False, name=None):
            if Case(*own) == case:
                change(content)
        known = {**frames.documents(DATA / "records", MACHINE, case), **documents}
        profiles = pd.DataFrame(columns=list(schema.COLUMNS))
        return frames.of_tables(MACHINE, case, found, profiles, known)

    return of


@pytest.fixture
def environment() -> dict[str, Any]:
    """The environment of that H100, to be changed."""
    content: dict[str, Any] = read_json(DATA / "records" / MACHINE / "environment.json")
    return content
