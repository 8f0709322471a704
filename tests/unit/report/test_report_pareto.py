"""Accuracy against speed in the report: the front, what is undecided, sizes and memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.report.conftest import evidence_of

from inferprof.report import plot_frame
from inferprof.report.compose import content_of
from inferprof.report.model import Table
from inferprof.report.sections import accuracy


@pytest.fixture
def formats(results: Any) -> Any:
    """fp32, and three formats of which the slow one is less accurate than fp16."""
    for name, ms, db in (("fp16", 2.0, 60.0), ("int8", 1.0, 15.0), ("slow", 3.0, 40.0)):
        results.ok(f"vit/{name}/ort_cuda/default/b1", ms, rounds=3, gpu=True)
        results.accuracy("vit", name, db, "pass")
        results.write(f"onnx/vit/{name}.convert.json", {"method": "made", "bytes": 4 << 20, "options": {}})
    results.ok("vit/fp32/ort_cuda/default/b1", 4.0, rounds=3, gpu=True)
    results.plan()
    return results


def tables(results: Any) -> dict[str, Table]:
    blocks = content_of(accuracy.pareto, evidence_of(results, None)).blocks
    return {block.name: block for block in blocks if isinstance(block, Table)}


def column(table: Table, key: str) -> list[Any]:
    place = [item.key for item in table.columns].index(key)
    return [row[place].value for row in table.rows]


def test_the_front_is_shown_and_the_csv_has_every_case(formats: Any) -> None:
    made = tables(formats)
    assert column(made["accuracy_front"], "precision") == ["int8", "fp16", "fp32"]
    assert column(made["accuracy_speed"], "standing") == ["front", "front", "behind", "front"]
    assert column(made["accuracy_speed"], "against")[2] == "fp16/ort_cuda/default"
    assert made["accuracy_speed"].csv_only


def test_size_and_memory_stand_beside_them(formats: Any) -> None:
    front = tables(formats)["accuracy_front"]
    assert column(front, "onnx_mib")[:2] == [4.0, 4.0]
    assert column(front, "memory_mib") == [734.0] * 3
    assert column(front, "engine_mib") == [None] * 3


def test_a_case_whose_memory_others_freed_shows_no_memory_of_the_host(formats: Any) -> None:
    for path in formats.root.rglob("benchmark/vit/int8/**/r0.json"):
        record = json.loads(path.read_text())
        record["memory"]["device_bytes"] = -(50 << 20)
        path.write_text(json.dumps(record))
    assert column(tables(formats)["accuracy_front"], "memory_mib") == [None, 734.0, 734.0]


def test_the_plot_has_the_same_standings(formats: Any) -> None:
    frame = plot_frame.of(evidence_of(formats, None)).set_index("precision")
    assert frame.loc["slow", "standing"] == "behind"
    assert frame.loc["fp32", "identical"]


def test_a_study_of_one_format_has_no_such_section(results: Any) -> None:
    results.ok("vit/fp32/ort_cuda/default/b1", 4.0, rounds=3, gpu=True)
    results.plan()
    assert tables(results) == {}
