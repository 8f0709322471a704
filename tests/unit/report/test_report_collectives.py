"""The section on what GPUs send each other: a row per GPU, and per operation, with the link's own numbers beside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.diagnosis.test_parallel_checks import LINKS, overlapped, sending
from tests.unit.report.conftest import evidence_of
from tests.unit.report.test_report_timeline import profile

from inferprof.profilers import nsys
from inferprof.report.compose import content_of
from inferprof.report.model import Cell, Table
from inferprof.report.sections import collectives

CASE = "vit/bf16/torch_eager/tp2/b1"
Rows = list[dict[str, Cell]]


@pytest.fixture
def study(results: Any) -> Any:
    results.ok(CASE, 4.0, gpu=True, options={"parallel": {"tensor": 2}})
    results.plan()
    return results


def tables(study: Any) -> tuple[dict[str, Rows], dict[str, set[str]]]:
    """Table → its rows, and the columns on the page."""
    blocks = content_of(collectives.build, evidence_of(study, "bf16/torch_eager/tp2")).blocks
    made = [block for block in blocks if isinstance(block, Table)]
    rows = {
        table.name: [{c.key: cell for c, cell in zip(table.columns, row, strict=True)} for row in table.rows]
        for table in made
    }
    return rows, {table.name: {column.key for column in table.columns if not column.hidden} for table in made}


def test_two_h200s_have_the_waiting_and_the_transfer_of_an_iteration(
    study: Any, captured: Callable[[str], Path]
) -> None:
    profile(study, CASE, nsys.read(captured("h200x2_tensor_parallel")))
    rows, shown = tables(study)
    first, second = rows["collectives"]
    assert [row["waiting_us"].value for row in (first, second)] == pytest.approx([1_490.5884, 184.5555])
    assert [row["calls"].value for row in (first, second)] == [8, 8]
    assert second["last_percent"].value == 87.5
    assert second["bus_gb_s"].value is None and "bus_gb_s" not in shown["collectives"]
    assert [row["communication_us"].value for row in rows["communication"]] == pytest.approx([1_763.7796, 462.0042])
    assert not {"tool", "slowed_us", "bubble_us", "clock_us"} & shown["communication"]


def test_messages_have_their_bandwidth_beside_that_of_the_link(study: Any, tmp_path: Path) -> None:
    profile(study, CASE, sending(1 << 20, 40).table(tmp_path), "kineto")
    study.write(f"{study.machine}/links.json", {"status": "ok", "reason": None, **LINKS})
    row = tables(study)[0]["collectives"][0]
    assert row["mb"].value == pytest.approx(1.048576)
    assert [row[name].value for name in ("bus_gb_s", "link_gb_s")] == pytest.approx([26.2144, 52.4288], rel=0.01)


def test_what_overlap_hides_and_costs_is_in_the_row_of_the_gpu(study: Any, tmp_path: Path) -> None:
    profile(study, CASE, overlapped(130).table(tmp_path), "kineto")
    row = tables(study)[0]["communication"][0]
    names = ("communication_us", "slowed_us", "hidden_us", "exposed_us")
    assert [row[name].value for name in names] == pytest.approx([400, 90, 390, 10], abs=3)


def test_without_communication_there_is_no_section(study: Any, captured: Callable[[str], Path]) -> None:
    profile(study, CASE, nsys.read(captured("h100_torch_eager")))
    assert tables(study) == ({}, {})
