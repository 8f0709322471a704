"""When a start is worth it: on the page where a choice is, and in the answer."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.report.conftest import evidence_of

from inferprof.report import evidence
from inferprof.report.model import Table
from inferprof.report.sections import use

PROVIDER = "vit/fp16/ort_cuda/default/b8"
ENGINE = "vit/fp16/tensorrt/default/b8"


def load(results: Any) -> evidence.Evidence:
    return evidence_of(results, "fp16/ort_cuda/default")


@pytest.fixture
def study(results: Any) -> Any:
    """An engine of 30 s that takes 7 ms instead of 10 on the device; end_to_end 1.6 times that."""
    results.ok(PROVIDER, 10.0, gpu=True)
    results.ok(ENGINE, 7.0, gpu=True)
    results.write(f"{results.machine}/engine/{ENGINE}.build.json", {"status": "ok", "bytes": 1, "seconds": 30.0})
    results.plan()
    return results


def test_an_engine_is_worth_its_build_from_so_many_inferences_on(study: Any) -> None:
    found = load(study)
    (table,) = use.break_even(found)
    assert isinstance(table, Table)
    first, case, start = ([row[column].value for row in table.rows] for column in (2, 5, 6))
    assert case == ["fp16/ort_cuda/default", "fp16/tensorrt/default"]
    assert start == pytest.approx([0.84, 30.83], abs=0.01)
    assert first[0] == 1
    assert first[1] == pytest.approx(30 / 1.6 / 3e-3, rel=0.05)
    assert [row[9].text for row in table.rows] == ["one", "one"]
    assert table.rows[1][3].missing is not None  # one start has no spread


def test_what_fails_in_accuracy_is_worth_nothing(study: Any) -> None:
    study.ok("vit/int8/tensorrt/default/b8", 1.0, gpu=True)
    study.accuracy("vit", "int8", 3.0, "fail")
    study.plan()
    assert "int8" not in str(use.break_even(load(study)))


def test_an_engine_whose_build_nobody_timed_is_left_out(study: Any) -> None:
    study.write(f"{study.machine}/engine/{ENGINE}.build.json", {"status": "ok", "bytes": 1})
    assert use.break_even(load(study)) == []
    study.ok("vit/fp16/tensorrt/graph/b8", 6.0, gpu=True)  # built by something that left no word of it
    study.plan()
    assert use.break_even(load(study)) == []
