from __future__ import annotations

import functools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.facts import facts, mentions, naming, states
from tests.unit.made_records import made

from inferprof import cli, compare, compare_sides, compare_text
from inferprof.case import Case, outcomes_csv
from inferprof.errors import UserError
from inferprof.tables import records

VIT = Case("vit", "fp16", "ort_cuda", "default", "b8")
BERT = Case("bert", "fp16", "ort_cuda", "default", "b8")
GPU = {"name": "GPU 9000", "driver": "580.1"}


def record(case: Case = VIT, round_: int = 0, ms: float = 10.0, **changes: Any) -> dict[str, Any]:
    noise = np.random.default_rng(round_).normal(1, 0.001, 50)
    samples = {"samples_ns": [round(ms * 1e6 * factor) for factor in noise], "settled": True}
    return {
        "schema": 1,
        "case": asdict(case),
        "round": round_,
        "machine": "gpu-9000-sm90-abc",
        "status": "ok",
        "reason": None,
        "boundaries": {"device": samples, "call": samples, "end_to_end": samples},
        "started": "2026-01-01T00:00:00+00:00",
        "outputs": {"y": {"sha256": "11", "shape": [1], "dtype": "float32"}},
        "telemetry": {"summary": {"throttle_reasons": [], "other_processes": 0}},
        "environment": {"git": "c0ffee", "packages": {"torch": "2.11"}, "gpu": GPU},
        "protocol": {"budget_s": 2.0, "graph": False},
    } | changes


def rounds(case: Case = VIT, ms: float = 10.0, jitter: float = 0.001, **changes: Any) -> list[dict[str, Any]]:
    spread = np.random.default_rng(int(ms * 1000)).normal(1, jitter, 5)
    return [record(case, i, ms * factor, **changes) for i, factor in enumerate(spread)]


def compared(a: list[dict[str, Any]], b: list[dict[str, Any]], **options: Any) -> compare.Comparison:
    return compare.compare_records(
        [made(entry) for entry in a], [made(entry) for entry in b], asked=compare.Asked(**options)
    )


def only(comparison: compare.Comparison) -> compare.CaseComparison:
    (case,) = comparison.cases
    return case


def test_a_slower_case_fails_the_gate():
    comparison = compared(rounds(ms=10.0), rounds(ms=10.4))
    case = only(comparison)
    assert case.ratio is not None
    assert (case.verdict, case.boundary, case.ratio.rounds) == ("slower", "device", 5)
    assert case.ratio.estimate == pytest.approx(1.04, abs=0.003)
    assert compare.exit_code(comparison) == 1
    assert facts(compare_text.render(comparison).rpartition(": B/A")[0], "case", "missing")[-11:] == [
        "no",
        "case",
        "slower",
        "1.0%",
        "more",
        "none",
        "broke",
        "none",
        "missing",
        "FAILED",
        "vit/fp16/ort_cuda/default/b8",
    ]


@pytest.mark.parametrize(("ms", "verdict"), [(9.0, "faster"), (10.001, "same")])
def test_a_faster_and_an_equal_case_pass_the_gate(ms, verdict):
    comparison = compared(rounds(ms=10.0), rounds(ms=ms))
    assert only(comparison).verdict == verdict
    assert compare.exit_code(comparison) == 0
    assert compare_text.render(comparison).endswith("none is missing): passed.\n")


def test_noise_is_undecided_and_passes_the_gate():
    comparison = compared(rounds(jitter=0.05), rounds(ms=10.2, jitter=0.05))
    assert only(comparison).verdict == "undecided"
    assert compare.exit_code(comparison) == 0


def probably_slower(case: Case = VIT) -> list[dict[str, Any]]:
    """Beside rounds of 10 ms: 1.6 times as slow, in rounds that differ so much that 1.005 is as likely."""
    steps = (-0.474, -0.237, 0.0, 0.237, 0.474)
    return [record(case, i, 10 * math.exp(0.47 + step)) for i, step in enumerate(steps)]


def test_what_is_probably_slower_neither_passes_nor_fails():
    comparison = compared(rounds(jitter=0), probably_slower())
    assert only(comparison).verdict == "undecided"
    assert compare.exit_code(comparison) == compare.UNDECIDED == 3
    assert str(VIT) in compare_text.render(comparison).rpartition("UNDECIDED")[2]


def test_a_failure_counts_for_more_than_what_is_undecided():
    comparison = compared([*rounds(jitter=0), *rounds(BERT)], [*probably_slower(), *rounds(BERT, ms=12)])
    assert sorted(case.verdict for case in comparison.cases) == ["slower", "undecided"]
    assert compare.exit_code(comparison) == 1


def test_the_gate_says_how_slow_what_noise_leaves_open_may_be():
    comparison = compared(rounds(jitter=0.05), rounds(ms=10.2, jitter=0.05))
    ratio = only(comparison).ratio
    assert ratio is not None and ratio.low < 1 < 1.01 < ratio.high
    last = compare_text.render(comparison).splitlines()[-1]
    assert "1 undecided" in last and f"{ratio.high:.3g}" in last and str(VIT) in last


def test_what_is_undecided_and_cannot_be_slower_is_not_left_open():
    steps = (-0.474, -0.237, 0.0, 0.237, 0.474)
    faster = [record(VIT, i, 10 * math.exp(-0.47 + step)) for i, step in enumerate(steps)]
    comparison = compared(rounds(jitter=0), faster)
    ratio = only(comparison).ratio
    assert ratio is not None and ratio.verdict == "undecided" and ratio.high < 1.01
    assert f"{ratio.high:.3g}" not in compare_text.render(comparison).rpartition("Gate")[2]


def test_a_strict_gate_passes_only_what_its_interval_shows():
    noise = (rounds(jitter=0.05), rounds(ms=10.2, jitter=0.05))
    assert compare.exit_code(compared(*noise, strict=True)) == compare.UNDECIDED
    quiet = compared(rounds(ms=10.0), rounds(ms=10.001), strict=True)
    assert compare.exit_code(quiet) == 0


def test_a_slow_down_below_the_threshold_given_passes():
    comparison = compared(rounds(ms=10.0), rounds(ms=10.4), threshold=0.1)
    assert only(comparison).verdict == "same"
    assert compare.exit_code(comparison) == 0


def test_a_case_that_fails_in_b_alone_broke_and_fails_the_gate():
    failed = rounds(status="failed", reason="out of memory on the GPU (8 bytes)")
    comparison = compared(rounds(), failed)
    case = only(comparison)
    assert (case.verdict, facts(case.note, "memory")) == ("broke", ["failed", "memory", "GPU", "8"])
    assert compare.exit_code(comparison) == 1


def test_a_case_that_failed_in_a_already_did_not_break():
    failed = rounds(status="failed", reason="NaN")
    comparison = compared(failed, failed)
    assert (only(comparison).verdict, facts(only(comparison).note, "A")) == (
        "not compared",
        ["A", "B", "failed", "NaN"],
    )
    assert compare.exit_code(comparison) == 0


def test_two_reasons_of_a_failure_are_both_given():
    a, b = (rounds(status="failed", reason=reason) for reason in ("NaN", "Inf"))
    (case,) = compared(a, b).cases
    assert states(case.note, "A", "failed", "NaN", "B", "failed", "Inf")


def test_a_case_that_b_lacks_fails_the_gate_unless_it_is_allowed_to():
    a = [*rounds(), *rounds(BERT)]
    comparison = compared(a, rounds())
    bert, vit = comparison.cases
    assert (bert.case, bert.verdict, bert.note) == (BERT, "missing", "only in A")
    assert vit.ratio is not None
    assert compare.exit_code(comparison) == 1
    allowed = compared(a, rounds(), allow_missing=True)
    assert compare.exit_code(allowed) == 0
    assert facts(compare_text.render(allowed), "case")[-8:] == [
        "no",
        "case",
        "slower",
        "1.0%",
        "more",
        "none",
        "broke",
        "passed",
    ]


@pytest.mark.parametrize(
    ("a", "b", "side"), [([], rounds(BERT), "B"), (rounds(BERT, status="failed", reason="NaN"), [], "A")]
)
def test_a_new_case_and_one_that_had_failed_before_pass_the_gate(a, b, side):
    comparison = compared([*rounds(), *a], [*rounds(), *b])
    assert (comparison.cases[0].verdict, comparison.cases[0].note) == ("not compared", f"only in {side}")
    assert compare.exit_code(comparison) == 0


def test_cpu_cases_are_compared_end_to_end():
    boundaries = record()["boundaries"] | {"device": {"not_measured": "the CPU has no device clock"}}
    comparison = compared(rounds(boundaries=boundaries), rounds(boundaries=boundaries))
    assert only(comparison).boundary == "end_to_end"


def test_rounds_that_only_one_side_has_are_left_out():
    case = only(compared(rounds(), rounds()[:3]))
    assert case.ratio is not None
    assert case.ratio.rounds == 3


def test_what_differs_is_said_first():
    environment = {"git": "beef", "packages": {"torch": "2.12", "onnx": "1.23"}, "gpu": GPU | {"driver": "590.2"}}
    protocol = {"budget_s": 1.0, "graph": True}
    b = rounds(environment=environment, protocol=protocol)[:4]
    comparison = compared(rounds(), b)
    assert comparison.differences == (
        compare.Difference("commit", "c0ffee", "beef"),
        compare.Difference("driver", "580.1", "590.2"),
        compare.Difference("package onnx", "none", "1.23"),
        compare.Difference("package torch", "2.11", "2.12"),
        compare.Difference("protocol budget_s", "2.0", "1.0"),
        compare.Difference("rounds", "5", "4"),
    )
    text = compare_text.render(comparison)
    assert text.index("driver: 580.1 | 590.2") < text.index("vit/fp16/ort_cuda/default/b8")


def test_a_case_stands_under_its_whole_name_with_verdict_ratio_interval_medians_and_the_reason():
    b = [record(round_=i, ms=12.0) for i in range(3)]
    lines = compare_text.render(compared([record(round_=i) for i in range(3)], b)).splitlines()
    at = lines.index("vit/fp16/ort_cuda/default/b8")
    assert facts(lines[at + 1]) == ["slower", "B/A", *["1.200"] * 3, "A", "10.00 ms", "B", "12.00 ms", "device"]
    assert states(lines[at + 2], "above", "1")


def test_the_times_shown_have_the_quotient_that_is_shown():
    a = [record(round_=i, ms=ms) for i, ms in enumerate((10.0, 10.0, 20.0))]
    b = [record(round_=i, ms=ms) for i, ms in enumerate((10.0, 20.0, 20.0))]
    text = compare_text.render(compared(a, b))
    ((estimate, *_, a_ms, b_ms),) = (
        [float(number) for number in re.findall(r"\d+\.\d+", line)]
        for line in text.splitlines()
        if line.endswith(" by device")
    )
    assert b_ms / a_ms == pytest.approx(estimate, abs=0.001) == pytest.approx(2 ** (1 / 3), abs=0.003)
    assert mentions(text, "geometric means of the rounds' medians")


def test_an_undecided_case_says_why():
    noisy = only(compared(rounds(jitter=0.05), rounds(ms=10.2, jitter=0.05)))
    unsettled = {name: entry | {"settled": False} for name, entry in record(ms=9.0)["boundaries"].items()}
    doubted = only(compared(rounds(), rounds(boundaries=unsettled)))
    assert noisy.verdict == doubted.verdict == "undecided"
    assert mentions("; ".join(noisy.reasons), "contains 1", "±1.0%")
    assert mentions("; ".join(doubted.reasons), "not called faster", "B: not settled")


def test_a_case_so_far_ahead_that_no_doubt_can_turn_it_is_faster_all_the_same():
    unsettled = {name: entry | {"settled": False} for name, entry in record()["boundaries"].items()}
    for ms, verdict in ((120.0, "faster"), (80.0, "undecided")):
        case = only(compared(rounds(ms=ms), rounds(boundaries=unsettled)))
        assert case.verdict == verdict and mentions("; ".join(case.reasons), "B: not settled")


def test_the_same_conditions_are_said_too():
    assert mentions(compare_text.render(compared(rounds(), rounds())), "same recorded conditions")


def test_cautions_name_throttling_neighbours_unsettled_runs_and_changed_outputs():
    b = rounds(
        outputs={"y": {"sha256": "22", "shape": [1], "dtype": "float32"}},
        telemetry={"summary": {"throttle_reasons": ["power cap"], "other_processes": 1}},
        boundaries={"device": {"samples_ns": [5e6, 6e6, 7e6], "settled": False}},
    )
    doubted = only(compared(rounds(), b))
    assert mentions(doubted.note, "B throttled (power cap)", "B shared", "outputs")
    assert doubted.verdict != "faster"
    assert doubted.ratio is not None and mentions(doubted.ratio.reason, "B: not settled")


def test_what_a_side_lacks_is_named_with_its_rounds():
    graph, pinned = (replace(VIT, variant=name) for name in ("graph", "pinned"))
    comparison = compared([*rounds(), record(graph)], [*rounds()[:4], record(pinned)])
    lines = compare_text.render(comparison).splitlines()
    for side, name in (("B lacks", "graph"), ("A lacks", "pinned")):
        at = next(index for index, line in enumerate(lines) if line.startswith(side))
        assert lines[at + 1] == f"  - vit/fp16/ort_cuda/{name}/b8"
    assert any("B lacks round 4" in case.note for case in comparison.cases)


def test_fewer_samples_than_a_median_needs_decide_nothing():
    few = rounds(boundaries={"device": {"samples_ns": [1e7]}})[:4]
    faster = rounds(boundaries={"device": {"samples_ns": [5e6]}})[:4]
    case = only(compared(few, faster))
    assert (case.verdict, case.ratio) == ("undecided", None)
    assert mentions(case.note, "A: 4 samples", "B: 4 samples")


def on_host(yardstick_ns: int, python: str = "3.12.3", **changes: Any) -> list[dict[str, Any]]:
    environment = record()["environment"] | {"python": python}
    readings = [yardstick_ns] * 8
    host = {"yardstick_ns": readings, "yardstick_cpu_ns": readings, "steal": {"percent": 0.0}}
    return rounds(environment=environment, host=host, **changes)


def test_a_slower_host_is_a_condition_and_a_caution_for_what_waits_for_it():
    a = on_host(1_000_000)
    found = compared(a, on_host(1_450_000))
    what = "the host's yardstick (B's host was 1.45 times as slow: what waits for launches too)"
    assert found.differences == (compare.Difference(what, "1 ms", "1.45 ms"),)
    assert mentions(only(found).note, "B's host", "1.45 times")
    assert mentions(only(compared(on_host(1_450_000), a)).note, "A's host", "1.45 times")
    assert compare.exit_code(found) == 0


def test_a_cuda_graph_is_not_cautioned_against_the_host():
    graph = {"budget_s": 2.0, "graph": True}
    found = compared(on_host(1_000_000, protocol=graph), on_host(1_450_000, protocol=graph))
    assert (len(found.differences), only(found).note) == (1, "")


def test_hosts_of_nearly_the_same_speed_are_not_mentioned():
    found = compared(on_host(1_000_000), on_host(1_040_000))
    assert (found.differences, only(found).note) == ((), "")


CPU = Case("vit", "fp32", "ort_cpu", "default", "b8")


@pytest.mark.parametrize(
    ("case", "ms", "yardstick", "verdict"),
    [
        (CPU, 13.9, 1.4, "undecided"),
        (CPU, 16.0, 1.4, "slower"),
        (CPU, 10.4, 1.0, "slower"),
        (CPU, 7.5, 0.7, "undecided"),
        (CPU, 6.0, 0.7, "faster"),
        (VIT, 13.9, 1.4, "slower"),
    ],
)
def test_what_the_speed_of_a_host_may_be_all_of_is_undecided_on_a_cpu(
    case: Case, ms: float, yardstick: float, verdict: str
) -> None:
    a, b = on_host(1_000_000, case=case), on_host(round(1e6 * yardstick), case=case, ms=ms)
    compared_case = only(compared(a, b))
    assert compared_case.verdict == verdict
    assert compared_case.ratio is not None
    assert ("by the clock" in compared_case.ratio.reason) == (verdict == "undecided")


def test_yardsticks_of_two_pythons_are_not_compared():
    found = compared(on_host(1_000_000), on_host(1_450_000, python="3.13.0"))
    assert found.differences == (compare.Difference("Python", "3.12.3", "3.13.0"),)
    assert only(found).note == ""


def test_a_side_without_a_yardstick_says_nothing_of_its_host():
    found = compared(rounds(), on_host(1_450_000))
    assert found.differences == (compare.Difference("Python", "unknown", "3.12.3"),)
    assert only(found).note == ""


def test_another_machine_is_paired_when_each_side_has_one():
    comparison = compared(rounds(), rounds(machine="other"))
    assert comparison.differences == (compare.Difference("machine", "gpu-9000-sm90-abc", "other"),)
    assert only(comparison).ratio is not None


def test_several_machines_pair_by_name_or_are_refused():
    both = [*rounds(), *rounds(machine="other")]
    assert len(compared(both, both).cases) == 2
    with pytest.raises(UserError, match=naming("gpu-9000-sm90-abc", "other", "B", "other", "results/MACHINE")):
        compared(both, rounds(machine="other"))


def test_no_line_is_wider_than_100_columns():
    long = Case("a_model_with_a_long_name", "fp16_calibrated", "ort_tensorrt_rtx", "reduce-overhead", "b64_s384")
    failed = rounds(long, status="failed", reason="a reason " * 40)
    text = compare_text.render(compared([*rounds(long), *rounds()], [*failed, *rounds(ms=11.0)]))
    assert max(map(len, text.splitlines())) <= 100
    assert "a reason" in text


def write(folder: Path, records: list[dict[str, Any]]) -> Path:
    for entry in records:
        path = folder / entry["machine"] / "benchmark" / Case(**entry["case"]).path / f"r{entry['round']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(entry))
    return folder


def plan(folder: Path, study: str, outcomes: dict[Case, str]) -> None:
    path = folder / "reports" / study / "cases.csv"
    path.parent.mkdir(parents=True)
    path.write_text(outcomes_csv("gpu-9000-sm90-abc", [(case, outcome, "") for case, outcome in outcomes.items()]))


def test_folders_and_archives_of_them_are_read_alike(tmp_path):
    a, b = write(tmp_path / "a", rounds()), write(tmp_path / "b", rounds(ms=11.0))
    bundle = tmp_path / "b.tar.gz"
    with tarfile.open(bundle, "w:gz") as archive:
        archive.add(b, arcname="results")
    of_machine = tmp_path / "before.tar"
    with tarfile.open(of_machine, "w") as archive:
        archive.add(b / "gpu-9000-sm90-abc", arcname="before")
    for of_b in (b, bundle, of_machine, b / "gpu-9000-sm90-abc"):
        comparison = compare.compare(a, of_b)
        assert only(comparison).verdict == "slower"
        assert comparison.b == str(of_b)


def accuracy(folder: Path, outcome: str) -> None:
    distance = {"cosine_mean": 0.9, "cosine_min": 0.9, "sqnr_db": 2.0, "max_abs_error": 1.0, "max_abs_expected": 9.0}
    tolerance = {"passes_db": 40.0, "warns_db": 30.0, "reason": "x"}
    content = {"outcome": outcome, "reason": f"SQNR-{outcome}", "tolerance": tolerance, "outputs": {"y": distance}}
    (folder / "onnx/vit").mkdir(parents=True, exist_ok=True)
    (folder / "onnx/vit/fp16.accuracy.json").write_text(json.dumps(content))


@pytest.mark.parametrize(("of_a", "of_b", "code"), [("pass", "fail", 1), ("warn", "warn", 0), ("fail", "fail", 0)])
def test_a_gate_fails_by_accuracy_that_b_alone_lacks(tmp_path: Path, of_a: str, of_b: str, code: int) -> None:
    a, b = write(tmp_path / "a", rounds()), write(tmp_path / "b", rounds())
    accuracy(a, of_a)
    assert mentions(compare_text.render(compare.compare(a, b)), "accuracy", "not compared")
    accuracy(b, of_b)
    for side in (b, b / "gpu-9000-sm90-abc"):
        comparison = compare.compare(a, side)
        assert (compare.exit_code(comparison), comparison.fidelity.compared) == (code, 1)
        assert ("SQNR-fail" in compare_text.render(comparison)) == bool(code)


def test_records_that_no_study_of_a_folder_asks_for_are_named(tmp_path: Path) -> None:
    a, b = (write(tmp_path / side, [*rounds(), *rounds(BERT)]) for side in "ab")
    assert compare.compare(a, b).unlisted == ()
    plan(a, "s", {VIT: "run"})
    comparison = compare.compare(a, b)
    assert comparison.unlisted == (str(BERT),)
    assert compare_text.render(comparison).count(str(BERT)) == 2


@pytest.mark.parametrize(("ms", "code"), [(11.0, 1), (10.0, 0)])
def test_a_reader_that_has_seen_enough_does_not_change_the_exit_code(tmp_path, ms, code):
    a, b = write(tmp_path / "a", rounds()), write(tmp_path / "b", rounds(ms=ms))
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "inferprof", "compare", str(a), str(b)]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize("content", [None, "text", "empty folder"])
def test_what_holds_no_records_is_refused(tmp_path, content):
    path = tmp_path / "b"
    if content == "empty folder":
        path.mkdir()
    elif content:
        path.write_text(content)
    with pytest.raises(UserError, match=r"no benchmark records|neither a results"):
        compare.compare(write(tmp_path / "a", rounds()), path)


def test_records_of_another_schema_are_refused(tmp_path):
    with pytest.raises(
        UserError,
        match=naming("r0.json", "schema", "1", "benchmark", "not", "inferprof"),
    ):
        compare_sides.read(write(tmp_path, [record(schema=2)]))


def test_a_gate_that_would_compare_nothing_is_refused():
    with pytest.raises(UserError, match=naming("A and B", "no case")):
        compared(rounds(VIT), rounds(BERT))


@pytest.mark.parametrize(
    ("of_a", "of_b", "said"),
    [
        ({"options": {"tf32": True}}, {"options": {}}, "options"),
        ({"placement": "pinned"}, {"placement": "device"}, "placement"),
        (
            {"inputs": {"x": {"shape": [1, 3], "dtype": "float32"}}},
            {"inputs": {"x": {"shape": [1, 4], "dtype": "float32"}}},
            "inputs",
        ),
        ({"boundaries": {}}, {}, "boundary"),
    ],
)
def test_what_is_not_the_same_work_is_refused(of_a, of_b, said):
    with pytest.raises(UserError, match=f"{VIT}: .*{said}"):
        compared(rounds(**of_a), rounds(**of_b))


def test_changed_options_are_compared_where_that_is_asked_for():
    of_a, of_b = rounds(options={"tf32": False}), rounds(ms=8, options={"tf32": True, "threads": 1})
    case = only(compared(of_a, of_b, changed_options=True))
    assert case.verdict == "faster"
    assert mentions(case.note, "tf32 False | True", "threads not set | 1")
    with pytest.raises(UserError, match=naming("tf32", "--changed-options")):
        compared(of_a, of_b)


GRAPH = replace(VIT, variant="graph")
ON_GRAPHS = rounds(GRAPH, ms=8, options={"cuda_graph": True})


def test_two_variants_of_one_study_are_compared(tmp_path: Path) -> None:
    study = write(tmp_path, [*rounds(), *ON_GRAPHS])
    case = only(compare.compare(study, study, compare.Asked(variants=("default", "graph"))))
    assert (case.case, case.verdict) == (GRAPH, "faster")
    with pytest.raises(UserError, match=naming("nothing", "none", "default", "graph")):
        compare.compare(study, study, compare.Asked(variants=("none", "graph")))


def test_cases_of_studies_that_do_not_run_both_variants_are_left_out(tmp_path: Path) -> None:
    refused, other, pinned = replace(GRAPH, backend="ort_cpu"), BERT, replace(BERT, variant="pinned")
    study = write(tmp_path, [*rounds(), *ON_GRAPHS, *rounds(replace(refused, variant="default")), *rounds(other)])
    write(tmp_path, rounds(pinned))
    plan(study, "graphs", {VIT: "run", GRAPH: "run", replace(refused, variant="default"): "run", refused: "refused"})
    plan(study, "other", {other: "run", pinned: "run"})
    asked = compare.Asked(variants=("default", "graph"))
    comparison = compare.compare(study, study, asked)
    assert (only(comparison).case, comparison.alone, compare.exit_code(comparison)) == (GRAPH, 2, 0)
    assert mentions(compare_text.render(comparison), "2 cases", "default and graph")
    plan(study, "crashed", {replace(BERT, variant="graph"): "run"})
    missing = compare.compare(study, study, asked)
    assert [case.case.model for case in missing.failures] == ["bert"]


def test_rounds_that_do_not_meet_are_refused():
    with pytest.raises(UserError, match="no round in common"):
        compared(rounds()[:2], rounds()[2:])


@pytest.mark.parametrize("ns", ["NaN", "Infinity", "0", "-1", "1e400", "1e-300", "true"])
@pytest.mark.parametrize("place", ["boundaries.device.samples_ns", "host.yardstick_cpu_ns"])
def test_a_number_that_is_none_fails_the_gate(tmp_path, capsys, ns, place):
    a = write(tmp_path / "a", rounds())
    host = {"yardstick_ns": [9.0], "yardstick_cpu_ns": [9.0], "steal": {"percent": 0.0}}
    (path,) = (b := write(tmp_path / "b", [record(host=host)])).rglob("r0.json")
    content = json.loads(path.read_text())
    *outer, last = place.split(".")
    functools.reduce(lambda part, name: part[name], outer, content)[last] = ["NUMBER"]
    path.write_text(json.dumps(content).replace('"NUMBER"', ns))
    assert cli.main(["compare", str(a), str(b)]) == 2  # nothing else is there
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"{path}: {place}" in said


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_case_whose_record_is_damaged_leaves_the_gate_undecided(tmp_path, side):
    sides = {name: write(tmp_path / name, [*rounds(BERT), *rounds()]) for name in ("a", "b")}
    for path in sides[side].glob("*/benchmark/vit/**/r?.json"):
        path.write_text("{")
    found = compare.compare(sides["a"], sides["b"])
    whole, lost = found.cases
    assert whole.verdict == "same" and lost.verdict == "not readable"
    assert "r0.json" in lost.note and lost.note.startswith(f"{side.upper()}: ")
    assert compare.exit_code(found) == compare.UNDECIDED
    assert str(lost.case) in compare_text.render(found).partition("UNDECIDED by")[2]


def test_a_case_is_compared_by_the_rounds_that_can_be_read(tmp_path):
    a, b = write(tmp_path / "a", rounds()), write(tmp_path / "b", rounds())
    next(b.rglob("r1.json")).write_text("{")
    (case,) = compare.compare(a, b).cases
    assert case.verdict == "same" and "r1.json" in case.note


def test_an_accuracy_that_cannot_be_read_does_not_pass(tmp_path):
    a, b = write(tmp_path / "a", rounds()), write(tmp_path / "b", rounds())
    path = b / "onnx" / "vit_tiny" / "fp16.accuracy.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    found = compare.compare(a, b)
    assert compare.exit_code(found) == compare.UNDECIDED and str(path) in " ".join(found.unread)


def test_records_are_of_the_case_and_round_of_their_path_and_of_one_machine_per_folder(tmp_path):
    a = write(tmp_path / "a", rounds())
    (a / "gpu-9000-sm90-abc").rename(a / "renamed")
    assert len(compare_sides.read(a / "renamed").records) == 5
    with pytest.raises(UserError, match=naming("renamed", "machine gpu-9000-sm90-abc", "move it away")):
        compare_sides.read(a)
    (a / "renamed").rename(a / "gpu-9000-sm90-abc")
    first, second = sorted(a.rglob("r?.json"))[:2]
    whole = second.read_text()
    second.write_text(first.read_text())
    (why,) = compare_sides.read(a).damaged.values()
    assert mentions(why, "round", "0", "not", "r1")
    second.write_text(whole.replace('"gpu-9000-sm90-abc"', '"another"'))
    with pytest.raises(UserError, match="several machines: another, gpu-9000"):
        compare_sides.read(a)


def test_a_folder_that_was_copied_beside_itself_is_refused(tmp_path):
    a = write(tmp_path / "a", rounds())
    shutil.copytree(a / "gpu-9000-sm90-abc", a / "gpu-9000-sm90-abc (copy)")
    with pytest.raises(UserError, match=naming("round 0", "twice")):
        compare_sides.read(a)


@pytest.mark.parametrize("name", ["r1 (copy).json", "r1.sync-conflict.json", "r\u00b2.json", "rx.json"])
def test_a_copy_of_a_record_beside_it_is_named(tmp_path, name):
    a = write(tmp_path / "a", rounds())
    first = next(a.rglob("r1.json"))
    shutil.copy(first, first.with_name(name))
    machine, _, *case, _ = first.relative_to(a).parts
    planned = pd.DataFrame([[machine, *case, "run", ""]], columns=records.CASES_COLUMNS)
    side, read = compare_sides.read(a), records.read(a, planned)
    (why,) = side.damaged.values()
    assert mentions(why, name, "round 1") and len(side.records) == 5
    (lost,) = records.rows_of(read[read["status"].eq(records.DAMAGED)])
    assert mentions(lost["reason"], name, "round 1") and len(records.sound(read)) == 5
