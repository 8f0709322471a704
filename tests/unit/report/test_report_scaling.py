"""The section on several GPUs: a row per size, from which size on they pay, and what is predicted of more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.diagnosis.test_parallel_checks import LINKS, sending
from tests.unit.facts import mentions
from tests.unit.report.conftest import evidence_of
from tests.unit.report.test_report_timeline import profile

from inferprof.report.compose import content_of
from inferprof.report.model import Table, Text
from inferprof.report.sections import scaling

TOOK = {"b1": (4.0, 4.1), "b2": (6.0, 5.2), "b8": (18.0, 11.8), "b16": (34.0, 20.6)}
"""Shape → ms on one GPU and on two: half of the first, 2 ms, and 0.1 ms or so a row."""


@pytest.fixture
def tables(results: Any) -> dict[str, list[dict[str, Any]]]:
    for shape, (one, two) in TOOK.items():
        results.ok(f"vit/bf16/torch_eager/default/{shape}", one, gpu=True)
        results.ok(f"vit/bf16/torch_eager/tp2/{shape}", two, gpu=True, options={"parallel": {"tensor": 2}})
    results.plan()
    blocks = content_of(scaling.build, evidence_of(results, "bf16/torch_eager/default")).blocks
    return {
        block.name: [{c.key: cell for c, cell in zip(block.columns, row, strict=True)} for row in block.rows]
        for block in blocks
        if isinstance(block, Table)
    }


def test_each_size_has_its_speed_up_and_what_the_model_says(tables: dict[str, list[dict[str, Any]]]) -> None:
    rows = tables["scaling"]
    assert [row["shape"].text for row in rows] == list(TOOK)
    assert [row["speed_up"].value for row in rows] == pytest.approx(
        [one / two for one, two in TOOK.values()], rel=0.01
    )
    assert [row["speed_up"].mark for row in rows] == ["fail", None, None, None]
    assert [row["model_ms"].value for row in rows] == pytest.approx([two for _, two in TOOK.values()], rel=0.02)


def test_it_says_from_which_size_on_two_pay_and_how_far_the_model_is_off(
    tables: dict[str, list[dict[str, Any]]],
) -> None:
    (row,) = tables["scaling_models"]
    assert 1 < row["pays_from"].value < 2
    assert row["residual_percent"].value < 2
    assert row["a_us"].value == pytest.approx(2_000, rel=0.1)


def test_four_and_eight_are_predictions_without_a_measurement(tables: dict[str, list[dict[str, Any]]]) -> None:
    rows = tables["scaling_predicted"]
    assert [row["divided"].text for row in rows] == ["tensor 4"] * 4 + ["tensor 8"] * 4
    assert all(row["low_ms"].value < row["high_ms"].value for row in rows)
    assert {row["measured_ms"].value for row in rows} == {None}


def test_without_divided_cases_there_is_no_section(results: Any) -> None:
    results.ok("vit/bf16/torch_eager/default/b1", 4.0, gpu=True)
    results.plan()
    assert not content_of(scaling.build, evidence_of(results, "bf16/torch_eager/default")).blocks


def doubts_of(results: Any) -> list[str]:
    content = content_of(scaling.build, evidence_of(results, "bf16/torch_eager/default"))
    return [block.text for block in content.blocks if isinstance(block, Text)]


def divided(results: Any, alone_ms: float, **more: Any) -> None:
    """A case of 1 ms on two GPUs, beside one."""
    results.ok("vit/bf16/torch_eager/default/b1", alone_ms, gpu=True, **more)
    results.ok("vit/bf16/torch_eager/tp2/b1", 1.0, gpu=True, options={"parallel": {"tensor": 2}})


def test_more_than_two_times_as_fast_on_two_gpus_is_in_doubt(results: Any) -> None:
    divided(results, 2.6)
    results.plan()
    (said,) = doubts_of(results)
    assert mentions(said, "vit/bf16/torch_eager/tp2/b1", "2.60×", "default", "2 GPUs", "cache")


def test_one_gpu_that_waits_for_launches_is_said_to_be_why(results: Any) -> None:
    divided(results, 2.6)
    results.ok("vit/bf16/torch_eager/graph/b1", 1.8, gpu=True, options={"cuda_graph": True})
    results.plan()
    assert mentions(doubts_of(results)[0], "launches", "graph", "1.812 ms")


def test_up_to_two_times_as_fast_on_two_gpus_is_not_in_doubt(results: Any) -> None:
    divided(results, 1.9)
    results.plan()
    assert doubts_of(results) == []


def test_the_link_predicts_what_messages_take_that_kineto_saw(results: Any, tmp_path: Path) -> None:
    divided(results, 1.6)
    results.plan()
    profile(results, "vit/bf16/torch_eager/tp2/b1", sending(1 << 20, 40).table(tmp_path), "kineto")
    results.write(f"{results.machine}/links.json", {"status": "ok", "reason": None, **LINKS})
    (table,) = [
        block
        for block in content_of(scaling.build, evidence_of(results, "bf16/torch_eager/default")).blocks
        if isinstance(block, Table) and block.name == "scaling"
    ]
    row = {column.key: cell for column, cell in zip(table.columns, table.rows[0], strict=True)}
    assert row["links_ms"].value == pytest.approx(float(str(row["alone_ms"].value)) / 2 + 8 * 0.02)
