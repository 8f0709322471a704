"""Which cases get further rounds and captures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.report.conftest import Results, evidence_of

from inferprof import selection
from inferprof.case import Case
from inferprof.errors import UserError
from inferprof.report import select

BASELINE = "fp32/ort_cpu/default"
GPU = {"name": "H100", "driver": "570"}
RUN: dict[str, Any] = {"git": "0123abcd", "packages": {}, "processes_on_gpu": None}


def chosen(results: Any) -> dict[str, tuple[bool, bool]]:
    """Case without its model → whether it is repeated and captured."""
    choices = select.choices(evidence_of(results, BASELINE))
    return {
        "/".join((c.case.precision, c.case.backend, c.case.variant, c.case.shape)): (c.repeat, c.capture)
        for c in choices
    }


def test_a_clear_winner_is_captured_beside_the_baseline_and_nothing_is_repeated(results: Results) -> None:
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0)
    results.ok("vit/fp16/ort_cpu/default/b1", 5.0)
    results.ok("vit/int8/ort_cpu/default/b1", 8.0)
    results.plan()
    assert chosen(results) == {
        "fp32/ort_cpu/default/b1": (False, True),
        "fp16/ort_cpu/default/b1": (False, True),
    }


def test_what_one_round_does_not_tell_apart_from_the_winner_is_repeated_with_it(results: Results) -> None:
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0)
    results.ok("vit/fp16/ort_cpu/default/b1", 5.0)
    results.ok("vit/int8/ort_cpu/default/b1", 5.1)
    results.ok("vit/bf16/ort_cpu/default/b1", 7.0)
    results.plan()
    assert chosen(results) == {
        "fp32/ort_cpu/default/b1": (False, True),
        "fp16/ort_cpu/default/b1": (True, True),
        "int8/ort_cpu/default/b1": (True, False),
    }


def test_a_speed_up_that_is_undecided_repeats_the_winner_and_the_baseline(results: Results) -> None:
    results.ok("vit/fp32/ort_cpu/default/b1", 5.1)
    results.ok("vit/fp16/ort_cpu/default/b1", 5.0)
    results.plan()
    assert set(chosen(results).values()) == {(True, True)}


def test_after_a_first_pass_each_winner_is_repeated(results: Results) -> None:
    for precision, ms in (("fp32", 10.0), ("fp16", 5.0), ("int8", 8.0)):
        results.ok(f"vit/{precision}/ort_cpu/default/b1", ms, protocol={"first_pass": True})
    results.plan()
    assert chosen(results) == {
        "fp32/ort_cpu/default/b1": (False, True),
        "fp16/ort_cpu/default/b1": (True, True),
    }


def unsettled(results: Results, case: str, ms: float) -> None:
    boundaries = results.measurement(case, 0, ms, gpu=False)["boundaries"]
    boundaries["end_to_end"]["settled"] = False
    results.ok(case, ms, boundaries=boundaries)


def test_a_baseline_that_did_not_settle_is_measured_again_with_the_winner(results: Results) -> None:
    unsettled(results, "vit/fp32/ort_cpu/default/b1", 10.0)
    results.ok("vit/fp16/ort_cpu/default/b1", 5.0)
    results.plan()
    assert set(chosen(results).values()) == {(True, True)}


def test_a_case_in_doubt_that_was_measured_faster_than_the_winner_is_repeated(results: Results) -> None:
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0)
    results.ok("vit/fp16/ort_cpu/default/b1", 5.0)
    unsettled(results, "vit/int8/ort_cpu/default/b1", 4.0)
    unsettled(results, "vit/bf16/ort_cpu/default/b1", 7.0)
    results.plan()
    assert chosen(results) == {
        "fp32/ort_cpu/default/b1": (False, True),
        "fp16/ort_cpu/default/b1": (False, True),
        "int8/ort_cpu/default/b1": (True, False),
    }


def test_where_all_cases_are_in_doubt_the_fastest_is_repeated_and_captured_beside_the_baseline(
    results: Results,
) -> None:
    for precision, ms in (("fp32", 10.0), ("fp16", 5.0), ("bf16", 7.0)):
        unsettled(results, f"vit/{precision}/ort_cpu/default/b1", ms)
    results.plan()
    assert chosen(results) == {
        "fp32/ort_cpu/default/b1": (False, True),
        "fp16/ort_cpu/default/b1": (True, True),
    }


@pytest.mark.parametrize(("gpu", "rounds"), [(True, ["1", "2", "3"]), (False, ["1"])])
def test_further_runs_are_one_of_each_runtime_of_a_repeated_case_and_round(
    results: Results, gpu: bool, rounds: list[str]
) -> None:
    for backend, ms in (("ort_cuda", 5.0), ("torch_eager", 5.0), ("ort_cpu", 10.0)):
        results.ok(f"vit/fp32/{backend}/default/b1", ms, gpu=gpu, environment=RUN | {"gpu": GPU if gpu else None})
    results.plan()
    protocol = {"rounds": 4, "cpu_rounds": 2}
    results.write(f"reports/{results.study}/config.json", {"baseline": BASELINE, "protocol": protocol})
    evidence = evidence_of(results, BASELINE)
    runs = list(select.further_runs(evidence, select.choices(evidence)))
    assert runs == [("run", name, "--round", number) for name in ("ort_cuda", "torch_eager") for number in rounds]


def test_a_selection_is_read_as_it_was_written(tmp_path: Path) -> None:
    first, second = (Case("vit", precision, "ort_cpu", "default", "b1") for precision in ("fp32", "fp16"))
    path = tmp_path / selection.NAME
    selection.write(
        path, [selection.Choice(first, False, True, "baseline"), selection.Choice(second, True, True, "a, b")]
    )
    assert selection.read(path) == selection.Selection(frozenset({second}), frozenset({first, second}))


@pytest.mark.parametrize(
    "text",
    [
        *("case\nvit", "case,repeat,capture,why\nvit/fp32,yes,,\n", "", "case,repeat,capture,why"),
        "case,repeat,capture,why\nvit/fp32/ort_cpu/default/b1,yes\n",
        "case,repeat,capture,why\nvit/fp32/ort_cpu/default/b1,yes,yes,a",
    ],
)
def test_a_selection_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / selection.NAME
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError):
        selection.read(path)
