"""What is said while a study runs: which jobs are at work, how long the rest takes, and never nothing for long."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import mentions

from inferprof import forked, outcomes, pace
from inferprof.pace import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def event(name: str, **fields: Any) -> logging.LogRecord:
    return logging.makeLogRecord({"event": name, "msg": "", **fields})


def begin(job: int, backend: str = "ort_cpu") -> logging.LogRecord:
    fields = {"rule_name": "benchmark", "rule_msg": f"Measure {backend}", "wildcards": {"backend": backend}}
    return event("job_info", jobid=job, **fields)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "durations.json"


def test_the_rest_takes_what_jobs_of_its_kind_took_here_before(file: Path) -> None:
    file.write_text(json.dumps({"box": {"benchmark/ort_cpu": 4.0}, "other": {"benchmark/ort_cpu": 900.0}}))
    said = Pace("box", lambda: ["benchmark/ort_cpu"] * 5, file, clock=Clock())
    assert said.left_s() == 20.0


def test_before_anything_is_learned_budgets_tell(file: Path) -> None:
    said = Pace("box", lambda: ["benchmark/ort_cpu", "build/tensorrt", "audit"], file, clock=Clock())
    assert said.left_s() == pace.BUDGETS_S["benchmark"] + pace.BUDGETS_S["build"] + pace.OTHER_S


def test_a_job_that_ends_teaches_this_run_and_the_next(file: Path) -> None:
    clock = Clock()
    said = Pace("box", lambda: ["benchmark/ort_cpu"], file, clock=clock)
    said.emit(begin(7))
    clock.now += 6
    said.emit(event("job_finished", job_id=7))
    assert said.seconds("benchmark/ort_cpu") == 6.0
    said.emit(begin(8))
    clock.now += 16
    said.emit(event("job_finished", job_id=8))
    assert Pace("box", list, file).seconds("benchmark/ort_cpu") == pytest.approx(9.0)


def test_a_job_that_failed_teaches_nothing_and_is_at_work_no_more(file: Path) -> None:
    said = Pace("box", list, file, clock=Clock())
    said.emit(begin(7))
    said.emit(event("job_error", jobid=7))
    assert "Measure" not in said.line()
    assert not file.exists()


def test_the_line_names_what_is_at_work_for_how_long_and_what_is_left(file: Path) -> None:
    clock = Clock()
    said = Pace("box", lambda: ["benchmark/ort_cpu"] * 30, file, clock=clock)
    said.emit(begin(7))
    clock.now += 5
    assert mentions(said.line(), "30 jobs", "5 min", "ort_cpu", "5 s")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "about 5 s"), (41, "about 45 s"), (200, "about 4 min"), (7800, "about 2 h 10 min")]
)
def test_times_are_rounded_up(seconds: float, text: str) -> None:
    assert pace.in_words(seconds) == text


def test_silence_lasts_ten_seconds_at_most_and_ends_with_any_event(file: Path) -> None:
    clock, lines = Clock(), list[str]()
    said = Pace("box", list, file, write=lines.append, clock=clock)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.now += seconds
        if len(waits) == 2:
            said.emit(begin(1))
        if len(waits) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pace._talk(said, wait)
    assert waits == [10.0, 10.0, 10.0, 10.0]
    assert len(lines) == 2  # the event stood in for the second


@pytest.mark.parametrize("content", ["", "[]", '{"box": {"benchmark": "x", "build": -1}}', '{"box": 3}'])
def test_a_damaged_file_teaches_nothing(file: Path, content: str) -> None:
    file.write_text(content)
    assert Pace("box", list, file).seconds("benchmark") == pace.BUDGETS_S["benchmark"]


def test_a_job_that_failed_is_said_with_its_reason_and_those_behind_it_as_not_run(file: Path, tmp_path: Path) -> None:
    graph, audit = tmp_path / "fp32.onnx", tmp_path / "fp32.audit.json"
    failed = {"status": "failed", "stage": "export", "reason": "expression\nzuf0"}
    for document in (tmp_path / "fp32.convert.json", audit):
        document.write_text(json.dumps(failed))
    lines: list[str] = []
    said = Pace("box", list, file, lines.append, Clock(), outcomes.told)
    jobs = [
        ("Export badnet", [], [graph]),
        ("Audit badnet", [graph], [audit]),
        ("Export net", [], [tmp_path / "net.onnx"]),
    ]
    for number, (title, needed, made) in enumerate(jobs):
        files = {"input": list(map(str, needed)), "output": list(map(str, made))}
        said.emit(event("job_info", jobid=number, rule_name="export", rule_msg=title, **files))
        said.emit(event("job_finished", job_id=number))
    first, second = lines
    assert mentions(first, "Export badnet", "export", "expression zuf0")
    assert mentions(second, "Audit badnet", "not", "export") and "zuf0" not in second


def test_the_line_has_the_step_that_a_job_is_at_by_its_log(file: Path, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    said = Pace("box", list, file, clock=Clock())
    said.emit(event("job_info", jobid=1, rule_name="benchmark", rule_msg="Measure net", log=[str(log)]))
    assert mentions(said.line(), "net", "0 s") and "of 1" not in said.line()
    log.write_text(f"inferprof: {forked.IMPORTING}, 1 s\n")
    assert forked.IMPORTING in said.line()
    log.write_text("inferprof: Measure net/b1: load (1 of 8), 0 s\nsome library: says more\n")
    assert mentions(said.line(), "net", "0 s", "load", "1 of 8") and "library" not in said.line()
