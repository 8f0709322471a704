"""NVIDIA's rules beside ours in the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.report.conftest import evidence_of

from inferprof.case import Case
from inferprof.profilers import ncu
from inferprof.report.compose import content_of
from inferprof.report.model import Table, Text
from inferprof.report.sections import counters
from inferprof.tables import schema

CASE = "vit_tiny/fp16/torch_eager/default/b8"


def section_of(results: Any, page: Path) -> Any:
    results.ok(CASE, 1.0, gpu=True)
    results.plan()
    path = results.root / results.machine / f"table/ncu/{CASE}.parquet"
    path.parent.mkdir(parents=True)
    schema.of_case(ncu.read(page), results.machine, Case.from_path(CASE)).to_parquet(path)
    return content_of(counters.rules, evidence_of(results, None))


@pytest.fixture
def data(repository: Path) -> Path:
    return repository / "tests/data/ncu"


def test_disagreements_are_on_the_page_and_every_rule_is_in_the_csv(results: Any, data: Path) -> None:
    text, apart, every = section_of(results, data / "h100_torch_vit_tiny_details.csv.gz").blocks
    assert isinstance(text, Text) and isinstance(apart, Table) and isinstance(every, Table)
    assert (every.csv_only, len(every.rows) > len(apart.rows) > 0) == (True, True)
    seen = [column.key for column in apart.columns].index("agreement")
    assert {row[seen].text for row in apart.rows} <= set(counters.APART)
    assert text.text.startswith(f"{len(every.rows)} results: ")


def test_counters_without_rules_have_no_such_section(results: Any, data: Path) -> None:
    assert section_of(results, data / "h100_ort_cuda_vit_raw.csv.gz").blocks == ()
