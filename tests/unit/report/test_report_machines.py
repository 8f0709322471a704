"""The report above those of several machines."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import mentions, states
from tests.unit.report.conftest import Results

from inferprof import report

CASES = {"fp32/ort_cuda": 2.0, "fp16/ort_cuda": 1.0}


def on(root: Path, label: str, factor: float, **more: Any) -> Results:
    """Three rounds of two cases of a model on a machine that takes `factor` times as long as the first."""
    results = Results(root, study=f"two/{label}", machine=label)
    for case, ms in CASES.items():
        results.ok(f"vit_tiny/{case}/default/b8", ms * factor, rounds=3, gpu=True, **more)
        results.accuracy("vit_tiny", case.split("/")[0], 60.0, "pass")
    gpu = {"name": f"GPU of {label}", "used": True}
    packages = {"torch": "2.13.0", "tensorrt": {"value": None, "reason": "not installed"}}
    results.write(f"{label}/environment.json", {"cpu": {"model": "Xeon"}, "gpus": [gpu], "packages": packages})
    return results


def written(root: Path, *labels: str) -> str:
    report.write_machines(root, "two", labels, "fp32/ort_cuda/default")
    return (root / "reports/two/REPORT.txt").read_text(encoding="utf-8")


def rows(root: Path, name: str) -> list[dict[str, str]]:
    with (root / f"reports/two/csv/{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_machines_stand_side_by_side_with_their_fastest_cases(tmp_path: Path) -> None:
    on(tmp_path, "left", 1.0).plan()
    on(tmp_path, "right", 0.5).plan()
    text = written(tmp_path, "left", "right")
    assert mentions(text, "study two", "2 machines")
    fastest = [(row["machine"], row["case"], row["boundary"]) for row in rows(tmp_path, "fastest")]
    assert fastest == [(name, "fp16/ort_cuda/default", "end_to_end") for name in ("left", "right")]
    facts = {row["fact"]: (row["left"], row["right"]) for row in rows(tmp_path, "machines")}
    assert facts["GPU"] == ("GPU of left", "GPU of right")
    assert facts["tensorrt"] == ("none", "none")
    assert facts["cases ok"] == ("2", "2")
    assert facts["report"] == ("reports/two/left/REPORT.txt", "reports/two/right/REPORT.txt")


def test_each_machine_is_compared_with_the_first_case_by_case(tmp_path: Path) -> None:
    for label, factor in (("left", 1.0), ("right", 0.5), ("third", 2.0)):
        on(tmp_path, label, factor).plan()
    text = written(tmp_path, "left", "right", "third")
    assert "right against left" in text and "third against left" in text and "third against right" not in text
    faster, slower = (rows(tmp_path, f"{label}_against_left") for label in ("right", "third"))
    assert [(row["precision"], row["boundary"], row["verdict"]) for row in faster] == [
        ("fp16", "device", "faster"),
        ("fp32", "device", "faster"),
    ]
    assert [round(float(row["ratio"]), 2) for row in faster + slower] == [0.5, 0.5, 2.0, 2.0]
    assert float(faster[0]["left_ms"]) == pytest.approx(2 * float(faster[0]["right_ms"]), rel=0.01)


def test_an_undecided_case_says_why(tmp_path: Path) -> None:
    on(tmp_path, "left", 1.0).plan()
    waited = {"yardstick_ns": [9e6], "yardstick_cpu_ns": [6e6], "steal": {"percent": 0.0}}
    on(tmp_path, "right", 0.5, host=waited).plan()
    text = written(tmp_path, "left", "right")
    assert mentions(text, "Undecided: vit_tiny/fp16/ort_cuda/default/b8", "not called faster", "B: its thread waited")
    assert mentions(text, "geometric means of the rounds' medians")


def test_conditions_that_were_not_the_same_are_named_first(tmp_path: Path) -> None:
    on(tmp_path, "left", 1.0).plan()
    older = {"git": "0123abcd", "packages": {"tensorrt": "10.8"}, "gpu": {"name": "H100", "driver": "570"}}
    on(tmp_path, "right", 1.0, environment=older).plan()
    text = written(tmp_path, "left", "right")
    assert mentions(text, "Not the same", "left", "right")
    assert states(text, "driver", "none", "570") and states(text, "tensorrt", "none", "10.8")
    assert "- machine" not in text


def test_a_case_of_one_machine_alone_is_not_rated(tmp_path: Path) -> None:
    on(tmp_path, "left", 1.0).plan()
    right = on(tmp_path, "right", 1.0)
    right.ok("vit_tiny/nvfp4/tensorrt/default/b8", 0.3, rounds=3, gpu=True)
    right.accuracy("vit_tiny", "nvfp4", 60.0, "pass")
    right.plan()
    written(tmp_path, "left", "right")
    alone = next(row for row in rows(tmp_path, "right_against_left") if row["precision"] == "nvfp4")
    assert (alone["verdict"], alone["note"], alone["ratio"]) == ("not compared", "only in B", "")


def test_a_machine_without_a_record_is_not_compared(tmp_path: Path) -> None:
    on(tmp_path, "left", 1.0).plan()
    right = Results(tmp_path, study="two/right", machine="right")
    right.refused("vit_tiny/fp32/ort_cuda/default/b8", "no GPU")
    right.plan()
    assert mentions(written(tmp_path, "left", "right"), "Not compared", "right")
