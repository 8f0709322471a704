"""Results of vLLM's benchmarks without a server, with the keys that its sources write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import mentions, naming

from inferprof.errors import UserError
from inferprof.explain import explain
from inferprof.readers.kind import Capture

SECONDS = [1.2 + 0.001 * (11 * number % 30) for number in range(30)]
LATENCY = {"avg_latency": 1.2145, "latencies": SECONDS, "percentiles": {"50": 1.2145, "99": 1.229}}
THROUGHPUT = {
    **{"elapsed_time": 80.0, "num_requests": 1000, "total_num_tokens": 400_000},
    **{"requests_per_second": 12.5, "tokens_per_second": 5000.0},
}


def told(path: Path, content: dict[str, Any]) -> Capture:
    path.write_text(json.dumps(content, indent=4))
    (case,) = explain([path])
    return case.captures[0]


def test_a_batch_is_the_median_of_its_times_and_how_far_they_differ(tmp_path: Path) -> None:
    capture = told(tmp_path / "latency.json", LATENCY)
    assert mentions(" ".join(capture.ran), "vllm bench latency", "1,214 ms", "median of 30")
    interval, spread = capture.notes[:2]
    assert mentions(interval, "95 %", "1,208 ms", "1,221 ms")
    assert mentions(spread, "fastest 1,200 ms", "slowest 1,229 ms")
    assert any("prefill" in lack.what for lack in capture.lacks)


def test_batches_that_became_slower_are_not_settled(tmp_path: Path) -> None:
    capture = told(tmp_path / "l.json", {**LATENCY, "latencies": [1 + 0.01 * number for number in range(60)]})
    assert mentions(capture.notes[-1], "+", "not settled")


def test_without_the_times_the_mean_is_told(tmp_path: Path) -> None:
    assert mentions(told(tmp_path / "l.json", {**LATENCY, "latencies": []}).ran[1], "1,214 ms", "mean")


def test_numbers_that_are_written_as_strings_are_numbers(tmp_path: Path) -> None:
    capture = told(tmp_path / "t.json", {key: str(value) for key, value in THROUGHPUT.items()})
    assert mentions(" ".join(capture.ran), "12.5 requests/s")


def test_a_throughput_is_told_with_what_was_sent(tmp_path: Path) -> None:
    capture = told(tmp_path / "throughput.json", THROUGHPUT)
    assert mentions(" ".join(capture.ran), "vllm bench throughput", "12.5 requests/s", "5,000 tokens/s")
    assert mentions(capture.notes[0], "1,000 requests in 80 s", "400 tokens each")
    assert any("request" in lack.what and "vllm bench serve" in lack.command for lack in capture.lacks)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({**LATENCY, "latencies": [1.2, float("nan")]}, "nan"),
        ({**LATENCY, "latencies": [1.2, -1]}, "-1"),
        ({**THROUGHPUT, "num_requests": "many"}, "num_requests"),
        ({**THROUGHPUT, "tokens_per_second": None}, "tokens_per_second"),
    ],
)
def test_numbers_that_are_none_are_refused_by_name(tmp_path: Path, content: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=naming("damaged", said)):
        told(tmp_path / "r.json", content)


def test_a_result_that_is_cut_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text(json.dumps(LATENCY)[:90])
    with pytest.raises(UserError, match="cut short"):
        explain([tmp_path / "cut.json"])
