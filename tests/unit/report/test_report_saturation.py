"""What the report says of saturation, and of how fast cases could be."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.report.conftest import evidence_of

from inferprof.report import evidence
from inferprof.report.compose import content_of
from inferprof.report.model import SectionContent, Table
from inferprof.report.sections import saturation, speed_ceiling
from inferprof.tables.limits.waterfall import NEEDS_TIMELINE


def load(results: Any) -> evidence.Evidence:
    return evidence_of(results, "fp32/ort_cpu/default")


def column(section: SectionContent, name: str, key: str) -> list[str]:
    table = next(one for one in section.blocks if isinstance(one, Table) and one.name == name)
    place = [one.key for one in table.columns].index(key)
    return [row[place].text for row in table.rows]


def test_cases_that_gain_by_every_batch_still_grow(gpu_study: Any) -> None:
    section = content_of(saturation.build, load(gpu_study))
    assert column(section, "saturation", "backend") == ["ort_cpu", *["ort_cuda"] * 3, "torch_compile"]
    assert column(section, "saturation", "saturated") == ["flat", *["no larger batch"] * 4]
    assert column(section, "saturation", "batch") == ["≤ 1", "over 8", "over 8", "over 8", "over 8"]
    assert column(section, "saturation", "regimes")[1] == "–"  # nothing tells of any batch


def test_a_single_batch_saturates_nothing(results: Any) -> None:
    results.ok("vit/fp16/ort_cuda/default/b1", 1.0, gpu=True)
    results.plan()
    assert content_of(saturation.build, load(results)).blocks == ()


@pytest.fixture
def with_graph(results: Any) -> Any:
    results.ok("vit/fp16/ort_cuda/default/b1", 1.0, rounds=3, gpu=True, options={})
    results.ok("vit/fp16/ort_cuda/graph/b1", 0.5, rounds=3, gpu=True, options={"cuda_graph": True})
    results.plan()
    return results


def test_changes_that_stand_among_the_fixes_are_in_the_csv_alone(with_graph: Any) -> None:
    tables = [one for one in content_of(speed_ceiling.build, load(with_graph)).blocks if isinstance(one, Table)]
    assert [(one.name, one.csv_only) for one in tables] == [("speed_ceiling", False), ("achieved", True)]


def test_a_graph_stands_beside_what_was_predicted_of_it(with_graph: Any) -> None:
    section = content_of(speed_ceiling.build, load(with_graph))
    assert column(section, "achieved", "change") == ["graph"]
    assert column(section, "achieved", "verdict") == ["faster"]
    assert column(section, "achieved", "predicted_ms") == ["–"]
    assert float(column(section, "achieved", "achieved_ms")[0]) == pytest.approx(0.8, rel=0.02)


def test_steps_without_their_source_are_missing_with_the_reason(with_graph: Any) -> None:
    section = content_of(speed_ceiling.build, load(with_graph))
    table = next(one for one in section.blocks if isinstance(one, Table) and one.name == "speed_ceiling")
    assert [row[5 + 1].text for row in table.rows] == ["–", "–"]
    assert f"not measured: {NEEDS_TIMELINE}" in table.footnotes
    assert column(section, "speed_ceiling", "copies_times")[0] == "1.43×"


def test_every_row_names_the_boundary_of_its_numbers(gpu_study: Any) -> None:
    section = content_of(saturation.build, load(gpu_study))
    assert column(section, "saturation", "boundary") == ["end_to_end", *["device"] * 4]
