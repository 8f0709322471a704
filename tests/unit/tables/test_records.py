"""Benchmark records as frames."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.facts import mentions

from inferprof.case import OF_DUELS
from inferprof.tables import join, records

CASES = pd.DataFrame(
    [
        ("box", "vit", "fp32", "ort_cpu", "default", "b2", "run", ""),
        ("box", "vit", "fp16", "ort_cpu", "default", "b2", "run", ""),
        ("box", "vit", "fp8", "ort_cpu", "default", "b2", "run", ""),
        ("box", "vit", "fp4", "ort_cpu", "default", "b2", "refused", "no such format here"),
    ],
    columns=[*records.KEY, "outcome", "reason"],
    dtype=object,
)


def content(round_: int, precision: str = "fp32", **more: Any) -> dict[str, Any]:
    case = ("vit", precision, "ort_cpu", "default", "b2")
    return {
        "schema": 1,
        "case": dict(zip(records.CASE_KEY, case, strict=True)),
        "machine": "box",
        "environment": {},
        "protocol": {},
        "started": "2026-01-01T00:00:00+00:00",
        "round": round_,
        "status": "ok",
        "reason": None,
        "boundaries": {
            "device": {"not_measured": "no device clock"},
            "end_to_end": {"samples_ns": [1000, 2000, 3000], "settled": True, "stopped_by": "count"},
        },
        "stages": {"execute": {"samples_ns": [5e6, 7e6]}, "h2d": {"not_measured": "no copy"}},
        "throughput": {
            "back_to_back": {"inferences": 100, "seconds": 2.0},
            "pipelined": {"not_measured": "needs a GPU"},
        },
        "first": {"load_ns": 1, "first_inference_ns": 2},
        "memory": {"host_rss_bytes": 3, "device_bytes": None},
        "checks": {"finite": {"passed": True, "detail": "1 output"}},
    } | more


@pytest.fixture
def results(tmp_path):
    def write(precision: str, round_: int, **more: Any) -> None:
        path = tmp_path / f"box/benchmark/vit/{precision}/ort_cpu/default/b2/r{round_}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content(round_, precision, **more)))

    for round_ in (0, 1, 10):
        write("fp32", round_)
    write("fp16", 0, status="failed", reason="all NaN")
    return tmp_path


def test_rounds_come_in_the_order_of_their_numbers(results):
    found = records.read(results, CASES)
    assert list(found["round"]) == [0, 1, 10, 0]
    assert found["file"][2] == "box/benchmark/vit/fp32/ort_cpu/default/b2/r10.json"
    assert list(found["status"]) == ["ok", "ok", "ok", "failed"]


def test_a_case_with_records_of_duels_alone_is_none_of_its_model(results: Path) -> None:
    duel = results / f"box/benchmark/vit/int8/ort_cpu/default/b2/r{OF_DUELS}.json"
    duel.parent.mkdir(parents=True)
    duel.write_text(json.dumps(content(OF_DUELS, "int8")))
    assert set(records.of_model(results, "box", "vit")["precision"]) == {"fp32", "fp16"}


def test_a_boundary_that_was_not_measured_keeps_its_row_and_reason(results):
    rows = records.boundaries(records.read(results, CASES).query("status == 'ok' and round == 0"))
    by_name = {row["boundary"]: row for row in records.rows_of(rows)}
    assert by_name["device"]["not_measured"] == "no device clock"
    assert by_name["device"]["samples"] is None
    assert mentions(by_name["call"]["not_measured"], "not have this boundary")
    np.testing.assert_array_equal(by_name["end_to_end"]["samples"], [1000.0, 2000.0, 3000.0])


def test_throughput_is_inferences_per_second(results):
    rows = records.rows_of(records.throughput(records.read(results, CASES).query("status == 'ok' and round == 0")))
    assert [(row["mode"], row["inferences_per_s"], row["not_measured"]) for row in rows] == [
        ("back_to_back", 50.0, None),
        ("pipelined", None, "needs a GPU"),
    ]


def test_the_hosts_speed_is_told_by_records_that_have_it(results):
    path = results / "box/benchmark/vit/fp32/ort_cpu/default/b2/r1.json"
    host = {"yardstick_ns": [7, 9], "yardstick_cpu_ns": [7, 8], "steal": {"percent": 0.5}}
    path.write_text(json.dumps(content(1, host=host)))
    old, new = records.rows_of(records.hosts(records.read(results, CASES).query("round < 2 and status == 'ok'")))
    assert (new["took"], new["on_cpu"], new["steal_percent"]) == ([7, 9], [7, 8], 0.5)
    assert new["not_measured"] is new["no_steal"] is None
    assert old["took"] is old["on_cpu"] is old["steal_percent"] is None
    assert old["not_measured"] == old["no_steal"] == records.NO_YARDSTICK


@pytest.mark.parametrize("content", ["[]", '{"schema": 1}', '{"schema": 1,', ""])
def test_a_file_that_is_no_record_costs_itself_alone(results, content):
    damaged = "box/benchmark/vit/fp32/ort_cpu/default/b2/r0.json"
    (results / damaged).write_text(content)
    found = records.read(results, CASES)
    (lost,) = records.rows_of(found[found["status"].eq(records.DAMAGED)])
    assert lost["file"] == damaged and lost["reason"].startswith(damaged) and lost["record"] is None
    assert list(records.sound(found)["round"]) == [1, 10, 0]
    outcomes = {row["precision"]: row for row in records.rows_of(join.outcomes(CASES, found))}
    assert (outcomes["fp32"]["outcome"], outcomes["fp32"]["rounds"]) == ("ok", 2)


def test_a_case_whose_every_record_is_damaged_is_broken_with_the_reason(results):
    for number in (0, 1, 10):
        (results / f"box/benchmark/vit/fp32/ort_cpu/default/b2/r{number}.json").write_text("{")
    row = records.rows_of(join.outcomes(CASES, records.read(results, CASES)))[0]
    assert (row["outcome"], row["rounds"]) == ("broken", 0)
    assert all(f"r{number}.json is not JSON" in row["reason"] for number in (0, 1, 10))


def test_each_planned_case_has_one_outcome(results):
    rows = records.rows_of(join.outcomes(CASES, records.read(results, CASES)))
    assert [(row["precision"], row["outcome"], row["reason"], row["rounds"]) for row in rows] == [
        ("fp32", "ok", "", 3),
        ("fp16", "failed", "all NaN", 0),
        ("fp8", "broken", "no record", 0),
        ("fp4", "refused", "no such format here", 0),
    ]
    assert {row["batch"] for row in rows} == {2}


def test_stages_are_medians_in_milliseconds_and_missing_where_there_are_none(results):
    frame = records.read(results, CASES).query("status == 'ok'")
    (row,) = records.rows_of(join.stage_medians(records.stages(frame)))
    assert row["execute_ms"] == 6.0
    assert np.isnan(row["h2d_ms"])


def test_no_records_give_empty_frames_with_their_columns(tmp_path):
    found = records.read(tmp_path, CASES)
    assert found.empty
    assert list(records.boundaries(found).columns) == [
        *records.RECORD_KEY, "boundary", "samples", "stopped_by", "settled", "not_measured"
    ]  # fmt: skip
    assert join.stage_medians(records.stages(found)).empty


def key(variant: str, **others: str) -> records.Key:
    names = {"machine": "box", "model": "vit", "precision": "fp16", "backend": "torch_eager", "shape": "b8"} | others
    return records.key_of(names | {"variant": variant})


def test_a_paired_case_is_the_same_case_without_one_option() -> None:
    options: dict[records.Key, dict[str, Any]] = {
        key("graph_pinned"): {"placement": "pinned", "cuda_graph": True},
        key("pinned"): {"placement": "pinned"},
        key("default"): {},
        key("graph"): {"cuda_graph": True},
        key("plain"): {},
    }
    assert records.paired_without("cuda_graph", options) == {
        key("graph_pinned"): [key("pinned")],
        key("graph"): [key("default"), key("plain")],
    }
    assert records.paired_without("placement", options) == {
        key("graph_pinned"): [key("graph")],
        key("pinned"): [key("default"), key("plain")],
    }


@pytest.mark.parametrize("other", ["machine", "model", "precision", "backend", "shape"])
def test_cases_that_differ_beside_their_variant_are_not_paired(other: str) -> None:
    assert (
        records.paired_without("tf32", {key("tf32"): {"tf32": True}, key("default", **{other: "another"}): {}}) == {}
    )


def test_the_other_options_are_the_same_in_any_order_and_in_no_other_value() -> None:
    graph = {"cuda_graph": True, "workspace": 64, "profile": ["b1", "b8"]}
    paired = {"profile": ["b1", "b8"], "workspace": 64}
    options = {key("graph"): graph, key("paired"): paired, key("more"): paired | {"workspace": 65}}
    assert records.paired_without("cuda_graph", options) == {key("graph"): [key("paired")]}


def test_an_option_at_its_default_is_given_all_the_same() -> None:
    options: dict[records.Key, dict[str, Any]] = {key("off"): {"cuda_graph": False}, key("default"): {}}
    assert records.paired_without("cuda_graph", options) == {key("off"): [key("default")]}
    assert records.paired_without("cuda_graph", {**options, key("default"): {"cuda_graph": True}}) == {}


def test_options_are_those_of_the_records_and_none_where_a_record_has_no_word_of_them(results):
    path = results / "box/benchmark/vit/fp32/ort_cpu/default/b2/r0.json"
    path.write_text(json.dumps(content(0, options={"tf32": True})))
    rows = records.read(results, CASES).query("round == 0")
    assert records.options_of(rows) == {
        ("box", "vit", "fp32", "ort_cpu", "default", "b2"): {"tf32": True},
        ("box", "vit", "fp16", "ort_cpu", "default", "b2"): {},
    }
