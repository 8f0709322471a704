"""How checks are asked, and what their answers are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from tests.unit.facts import facts, naming, states

from inferprof import registry
from inferprof.case import Case
from inferprof.diagnosis import frames, run
from inferprof.errors import UserError
from inferprof.findings import NEEDS, Change, Clear, Documents, Finding, Frames, Gain, Need, NotAssessed
from inferprof.plugins import Check
from inferprof.profilers import ort_profile
from inferprof.tables import records, schema

CASE = Case("vit", "fp16", "ort_cuda", "default", "b8")
NOTHING = frames.of_tables(
    "m",
    CASE,
    frames.peers_of(records.frame_of([], [*records.RECORD_KEY, "status", "reason", "record"])),
    pd.DataFrame(columns=list(schema.COLUMNS)),
)


def check(answer: list[Finding] | Clear | NotAssessed, needs: tuple[Need, ...] = ()) -> Check:
    def asked(frames: Frames) -> list[Finding] | Clear:
        if isinstance(answer, NotAssessed):
            raise answer
        return answer

    return Check("asked", "Asked", "host", needs, asked)


def test_everything_that_a_check_needs_and_does_not_have_is_named() -> None:
    given = run.answer(check(Clear("never asked"), ("gpu", "record", "timeline")), NOTHING)
    assert given.verdict == "not assessed"
    assert given.reason == f"needs {NEEDS['gpu']}; {NEEDS['record']}; {NEEDS['timeline']}"


def test_nothing_is_known_of_a_case_that_was_not_measured() -> None:
    every = tuple(need for need in NEEDS if need != "cpu")  # nothing tells that it ran on a GPU
    assert run.answer(check(Clear(""), every), NOTHING).reason == f"needs {'; '.join(NEEDS[need] for need in every)}"
    assert NOTHING.total is None
    assert NOTHING.share(5.0) is None


def test_a_check_that_misses_something_on_the_way_says_what() -> None:
    given = run.answer(check(NotAssessed("the driver's version")), NOTHING)
    assert (given.verdict, given.reason) == ("not assessed", "needs the driver's version")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (
            lambda: Clear("", {"share": float("inf")}),
            "the check asked gave what no diagnosis can hold: ",
        ),
        (
            lambda: Clear("", {"share": 1e200}),
            "the check asked gave what no diagnosis can hold: Expected `float` <= 1e+24",
        ),
        (lambda: [], "the check asked gave neither findings nor Clear"),
        (
            lambda: ["text"],
            "the check asked gave neither findings nor Clear",
        ),
        (lambda: None, "the check asked gave neither findings nor Clear, but None"),
    ],
)
def test_a_check_that_fails_is_not_assessed(
    caplog: pytest.LogCaptureFixture, given: Callable[[], Any], reason: str
) -> None:
    failing = dataclasses.replace(check(Clear("")), run=lambda frames: given())
    answer = run.answer(failing, NOTHING)
    assert (answer.verdict, answer.findings) == ("not assessed", ()) and str(answer.reason).startswith(reason)
    caplog.clear()


@pytest.mark.parametrize(
    "given",
    [
        Clear("", {"times": "many"}),  # type: ignore[dict-item]
        [Finding("", "boredom", None, "", {}, "", None, "", "high")],  # type: ignore[arg-type]
        [Finding("", "launch", "half", "", {}, "", None, "", "high")],  # type: ignore[arg-type]
    ],
)
def test_a_check_that_gives_what_no_document_holds_is_not_assessed_alone(
    caplog: pytest.LogCaptureFixture, given: Any
) -> None:
    answer = run.answer(check(given), NOTHING)
    assert answer.verdict == "not assessed" and "no diagnosis can hold" in answer.reason
    caplog.clear()


@pytest.mark.parametrize("gain", [Gain(-1.0, 5.0), Gain(5.0, 1.0), Gain(0.0, float("inf")), Gain(float("nan"), 1.0)])
def test_a_gain_of_a_users_check_that_is_no_time_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gain: Gain
) -> None:
    monkeypatch.setattr(registry, "from_outside", lambda function: True)
    answer = run.answer(check(Clear("", gain=gain)), NOTHING)
    assert answer.verdict == "not assessed" and "gave Gain" in str(answer.reason)
    caplog.clear()


def test_clear_keeps_its_reason_and_numbers() -> None:
    given = run.answer(check(Clear("2 ns of 100", {"idle_ns": 2.0})), NOTHING)
    assert (given.verdict, given.reason, given.evidence, given.findings) == (
        "clear",
        "2 ns of 100",
        {"idle_ns": 2.0},
        (),
    )


def test_the_document_holds_each_finding_with_its_bounds() -> None:
    finding = Finding(
        "", "launch", 0.5, "half", {"idle_ns": 50.0}, "nsys", Gain(10.0, 50.0), "a CUDA graph", "medium"
    )
    document = run.document(NOTHING, [run.answer(check([finding]), NOTHING)])
    assert document["case"] == {
        "model": "vit",
        "precision": "fp16",
        "backend": "ort_cuda",
        "variant": "default",
        "shape": "b8",
    }
    assert document["answers"][0]["findings"][0]["gain"] == {"low_ns": 10.0, "high_ns": 50.0}
    assert document["answers"][0]["verdict"] == "found"


def test_a_case_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=naming("record", "table", str(CASE))):
        frames.load(tmp_path, "m", CASE)


def test_a_table_alone_is_enough_and_every_answer_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "m/table/nsys" / f"{CASE.path}.parquet"
    path.parent.mkdir(parents=True)
    NOTHING.profiles.astype(schema.COLUMNS).to_parquet(path)
    loaded = frames.load(tmp_path, "m", CASE)
    assert loaded.documents == Documents()
    assert {(one.verdict, one.reason[:6]) for one in run.answers(loaded)} == {("not assessed", "needs ")}


def test_a_case_that_failed_in_one_round_counts_as_not_measured(measured: Callable[..., Frames]) -> None:
    def fail(record: dict[str, Any]) -> None:
        record |= {"status": "failed", "reason": "out of memory"}

    path = "vit_base/fp16/ort_cuda/default/b8"
    assert measured(path).total is not None
    failed = measured(path, fail)
    assert (len(failed.records), failed.total) == (0, None)
    assert "b8" not in set(failed.peers.loc[failed.peers["backend"] == "ort_cuda", "shape"])


def on_the_cpu(record: dict[str, Any]) -> None:
    """The record of a GPU made into one of a CPU: 10 ms, of which 0.6 ms is staging, and no clock of a device."""
    none = {"not_measured": "the CPU has no device clock"}
    stages = {"stage_inputs": 0.5, "bind": 0.2, "execute": 9.2, "extract": 0.1}
    record["boundaries"] = {"device": none, "call": none, "end_to_end": {"samples_ns": [10_000_000] * 9}}
    record["stages"] = {"h2d": none, "d2h": none} | {
        stage: {"samples_ns": [int(ms * 1e6)] * 9} for stage, ms in stages.items()
    }


def test_a_case_on_a_cpu_has_its_stages_in_its_verdict_and_needs_a_gpu_alone(measured: Callable[..., Frames]) -> None:
    frames_ = measured("vit_base/fp16/ort_cuda/default/b8", on_the_cpu)
    given = run.answers(frames_)
    lacking = {one.check: one.reason for one in given if one.verdict == "not assessed"}
    assert records.NO_YARDSTICK in lacking.pop("unsteady_host")
    of_cpus = {lacking.pop(name) for name in ("cpu_threads", "cpu_limit", "cpu_operators", "cpu_conversions")}
    assert all(reason.startswith("needs ") for reason in of_cpus)
    of_load = {lacking.pop(name) for name in ("batch_delay", "batch_cap", "serving_rate")}
    assert of_load == {f"needs {NEEDS['load']}"}
    of_ranks = {lacking.pop(check.name) for check in registry.checks().values() if "ranks" in check.needs}
    assert of_ranks == {f"needs {NEEDS['ranks']}"}
    of_caches = {lacking.pop(check.name) for check in registry.checks().values() if "cache" in check.needs}
    assert of_caches == {f"needs {NEEDS['cache']}"}
    assert set(lacking.values()) == {f"needs {NEEDS['gpu']}"}
    assert facts(run.document(frames_, given)["verdict"]["sentence"]) == [
        "end_to_end",
        "10 ms",
        "94.0 %",
        "execution",
        "6.0 %",
        "copies",
        "5",  # those of a CPU, and unsteady_host
        "7",
        "not",
        "ort_profile",
        "profilers",
    ]


def test_the_longest_operators_of_a_case_on_a_cpu_are_named(
    measured: Callable[..., Frames], repository: Path
) -> None:
    bare = measured("vit_base/fp16/ort_cuda/default/b8", on_the_cpu)
    rows = ort_profile.read(repository / "tests/data/ort_profile/h100_ort_cuda_vit.json.gz")
    rows["owner"] = rows["owner"].str.replace("CUDAExecutionProvider", "CPUExecutionProvider", regex=False)
    watched = dataclasses.replace(bare, profiles=schema.of_case(rows, bare.machine, bare.case))
    assert states(
        run.document(watched, [])["verdict"]["sentence"],
        "ort_profile",
        "Gemm",
        "27.2 %",
        "MatMul",
        "17.5 %",
        "Transpose",
        "10.2 %",
    )


def test_every_finding_names_its_change_as_data() -> None:
    finding = Finding("", "launch", 0.5, "half", {}, "nsys", None, "do less", "medium")
    looking = msgspec.structs.replace(finding, acts=False)
    named = msgspec.structs.replace(finding, change=Change("variant", {"cuda_graph": True}))
    asked = dataclasses.replace(check([finding, looking, named]), by="machine")
    changes = [given.change for given in run.answer(asked, NOTHING).findings]
    assert changes == [Change("machine"), Change("profilers"), Change("variant", {"cuda_graph": True})]
    assert [given.options for given in run.answer(asked, NOTHING).findings] == [{}, {}, {"cuda_graph": True}]
