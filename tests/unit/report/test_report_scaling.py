"""The section on several GPUs: a row per size, from which size on they pay, and what is predicted of more."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.report.conftest import evidence_of

from inferprof.report.compose import content_of
from inferprof.report.model import Table
from inferprof.report.sections import scaling

TOOK = {"b1": (4.0, 4.1), "b2": (6.0, 5.2), "b8": (18.0, 11.8), "b16": (34.0, 20.6)}
"""Shape → ms on one GPU and on two: half of the first, 2 ms, and 0.1 ms or so a row."""


@pytest.fixture
def tables(results: Any) -> dict[str, list[dict[str, Any]]]:
    for shape, (one, two) in TOOK.items():
        results.ok(f"vit/bf16/torch_eager/default/{shape}", one, gpu=True)
        results.ok(f"vit/bf16/torch_eager/tp2/{shape}", two, gpu=True, options={"parallel": {"tensor": 2}})
    results.plan()
    blocks = content_of(scaling.SECTION, evidence_of(results, "bf16/torch_eager/default")).blocks
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
    assert not content_of(scaling.SECTION, evidence_of(results, "bf16/torch_eager/default")).blocks
