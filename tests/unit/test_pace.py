"""What is said while a study runs: which jobs are at work, how long the rest takes, and never nothing for long."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import states

from inferprof import pace
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
    assert states(said.line(), "30 jobs", "5 min", "ort_cpu", "5 s")


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
