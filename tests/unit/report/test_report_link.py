"""Copies over the link against its floor, and the bandwidths themselves."""

from typing import Any

import pytest
from tests.unit.facts import facts
from tests.unit.report.conftest import evidence_of

from inferprof.report import evidence
from inferprof.report.compose import content_of
from inferprof.report.model import Block, Table, Text
from inferprof.report.sections import environment, use

INPUTS = {"x": {"shape": [2_000_000], "dtype": "float32"}}
OUTPUTS = {"y": {"shape": [1000], "dtype": "float32"}}


def curve(gb_per_s: float, latency_ns: float) -> dict[str, Any]:
    return {"gb_per_s": gb_per_s, "latency_ns": latency_ns, "by_size": {"4096": latency_ns}}


BANDWIDTH = {
    "method": "one copy at a time, median",
    "h2d": {"pageable": curve(10.0, 9000.0), "pinned": curve(50.0, 2000.0)},
    "d2h": {"pageable": curve(8.0, 9000.0), "pinned": curve(40.0, 2000.0)},
    "d2d": {"gb_per_s": 3000.0, "latency_ns": 3000.0, "by_size": {"1048576": 2500.0}},
}


def load(results: Any) -> evidence.Evidence:
    results.plan()
    return evidence_of(results, None)


def cells(blocks: list[Block], name: str) -> list[list[str]]:
    (table,) = (block for block in blocks if isinstance(block, Table) and block.name == name)
    return [[cell.text for cell in row] for row in table.rows]


def texts(blocks: list[Block]) -> list[str]:
    return [block.text for block in blocks if isinstance(block, Text)]


@pytest.fixture
def bandwidth(results):
    results.write(f"{results.machine}/bandwidth.json", BANDWIDTH)


def stages(**ms: float) -> dict[str, Any]:
    return {name: {"samples_ns": [value * 1e6] * 3} for name, value in ms.items()}


@pytest.mark.usefixtures("bandwidth")
def test_inputs_that_take_far_longer_than_the_link_needs_are_said_to(results):
    slow = stages(stage_inputs=30.0, h2d=4.5, bind=0.1, execute=1.0, d2h=0.01, extract=0.01)
    results.ok("vit/fp16/ort_cuda/default/b8", 20.0, gpu=True, stages=slow, inputs=INPUTS, outputs=OUTPUTS)
    found = use.link(load(results))
    # 8 MB at 50 GB/s and 2 µs; 4 kB at 40 GB/s and 2 µs
    (row,) = cells(found, "link_floor")
    assert row[5:] == ["4.50", "0.162", "27.8×", "8.00", "0.0100", "0.00210", "4.76×", "0.00400"]
    assert [facts(text) for text in texts(found)] == [
        ["vit/fp16/ort_cuda/default/b8", "34.5 ms", "stage_inputs", "30.0", "h2d", "4.50", "8.00 MB", "0.162 ms"]
    ]


@pytest.mark.usefixtures("bandwidth")
def test_of_many_slow_copies_four_have_a_sentence(results):
    for batch in range(1, 7):
        slow = stages(stage_inputs=1.0 * batch, h2d=1.0, bind=0.1, execute=1.0, d2h=0.01, extract=0.01)
        results.ok(f"vit/fp16/ort_cuda/default/b{batch}", 1.0, gpu=True, stages=slow, inputs=INPUTS, outputs=OUTPUTS)
    sentences = texts(use.link(load(results)))
    assert [sentence.split(":")[0] for sentence in sentences[:4]] == [
        f"vit/fp16/ort_cuda/default/b{batch}" for batch in (6, 5, 4, 3)
    ]
    assert [facts(text) for text in sentences[4:]] == [["2", "more", "csv/link_floor.csv"]]


def test_where_no_bandwidth_was_measured_the_floor_has_a_reason(results):
    results.ok("vit/fp16/ort_cuda/default/b8", 1.0, gpu=True, inputs=INPUTS, outputs=OUTPUTS)
    found = use.link(load(results))
    (table,) = (block for block in found if isinstance(block, Table))
    assert table.footnotes == (f"not measured: no {results.machine}/bandwidth.json",)
    assert texts(found) == []


@pytest.mark.usefixtures("bandwidth")
def test_inputs_that_lie_on_the_device_have_no_copy_and_old_records_no_size(results):
    resident = stages(bind=0.1, execute=1.0, d2h=0.01, extract=0.01)
    resident |= {name: {"not_measured": "placed on the device"} for name in ("stage_inputs", "h2d")}
    results.ok("vit/fp16/ort_cuda/default/b8", 1.0, gpu=True, stages=resident, inputs=INPUTS)
    (table,) = (block for block in use.link(load(results)) if isinstance(block, Table))
    assert [facts(text, "stage", "outputs") for text in table.footnotes] == [
        ["not", "h2d", "no", "stage"],
        ["not", "not", "outputs"],
    ]


def test_on_a_cpu_nothing_crosses_a_link(results):
    results.ok("vit/fp32/ort_cpu/default/b8", 1.0, inputs=INPUTS, outputs=OUTPUTS)
    assert use.link(load(results)) == []


@pytest.mark.usefixtures("bandwidth")
def test_the_environment_shows_the_bandwidths(results):
    results.ok("vit/fp16/ort_cuda/default/b8", 1.0, gpu=True)
    rows = cells(list(content_of(environment.build, load(results)).blocks), "bandwidth")
    assert [row[:3] for row in rows] == [
        ["h2d pinned", "50.00", "2.00"],
        ["h2d pageable", "10.00", "9.00"],
        ["d2h pinned", "40.00", "2.00"],
        ["d2h pageable", "8.000", "9.00"],
        ["d2d", "3,000", "3.00"],
    ]
    assert rows[4][3:] == ["–", "2,500"]


def test_the_overlap_of_a_case_is_the_median_of_its_rounds(results):
    case = "vit/fp16/ort_cuda/default/b8"
    results.ok(case, 1.0, rounds=3, gpu=True)
    for round_, share in enumerate((0.9, 0.5, 0.6)):
        path = results.root / results.record_path(case, round_)
        path.write_text(path.read_text().replace('"overlap": 0.72', f'"overlap": {share}'))
    assert cells(list(content_of(use.build, load(results)).blocks), "throughput")[0][-1] == "60"
