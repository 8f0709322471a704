"""Results of generators of load, as several tools print them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.facts import mentions

from inferprof.errors import UserError
from inferprof.explain import explain
from inferprof.explain.foreign import Foreign
from inferprof.findings import Finding

VLLM = {
    "mean_ttft_ms": 300.0,
    "mean_itl_ms": 10.0,
    "completed": 10,
    "total_output_tokens": 210,
    "request_throughput": 4.0,
}
AIPERF = {
    "time_to_first_token": {"unit": "ms", "avg": 300.0},
    "inter_token_latency": {"unit": "ms", "avg": 10.0},
    "output_sequence_length": {"unit": "tokens", "avg": 21.0},
    "request_throughput": {"unit": "requests/sec", "avg": 4.0},
}
TEXTS = {
    "vllm.txt": """============ Serving Benchmark Result ============
Successful requests:            10
Total generated tokens:         210
Request throughput (req/s):     4.00
Mean TTFT (ms):                 300.00
Mean TPOT (ms):                 11.00
Mean ITL (ms):                  10.00
""",
    "trtllm.txt": """Average Output Length (tokens):  21.0000
= PERFORMANCE OVERVIEW
Request Throughput (req/sec):    4.0000
Average request latency (ms):    500.0000
Average time-to-first-token [TTFT] (ms):    300.0
""",
    "genai.csv": """Metric,avg,min,max
Time To First Token (ms),300.00,13.25,"1,061.04"
Inter Token Latency (ms),10.00,4.29,15.10
Request Latency (ms),500.00,411.95,508.53

Metric,Value
Request Throughput (per sec),4.00
""",
    "genai.txt": """   LLM Metrics
┃             Statistic ┃         avg ┃ max ┃
│ Time to first token (ns) │ 300,000,000 │ 1 │
│     Request latency (ns) │ 500,000,000 │ 1 │
""",
    "vllm.json": json.dumps(VLLM),
    "aiperf.json": json.dumps(AIPERF),
}
SERVER = """Request concurrency: {load}
  Client:
    Throughput: {rate} infer/sec
    Avg latency: 1000 usec (standard deviation 15 usec)
  Server:
    Avg request latency: 900 usec ({stages})
"""
STAGES = "overhead 10 usec + queue {} usec + compute input 20 usec + compute infer 250 usec + compute output 20 usec"


def answered(path: Path, text: str) -> tuple[Foreign, Finding]:
    path.write_text(text)
    (case,) = explain([path])
    (finding,) = [finding for answer in case.answers for finding in answer.findings]
    return case, finding


@pytest.mark.parametrize("name", TEXTS)
def test_a_request_is_its_first_token_and_the_others(name: str, tmp_path: Path) -> None:
    case, finding = answered(tmp_path / name, TEXTS[name])
    assert case.total is not None and case.total.ns == pytest.approx(500e6)
    assert list(case.captures[0].parts.values()) == pytest.approx([300e6, 200e6])
    assert finding.share == pytest.approx(0.6) and mentions(finding.reason, "300 ms")


def test_a_short_wait_for_the_first_token_leaves_the_others(tmp_path: Path) -> None:
    _, finding = answered(tmp_path / "vllm.txt", TEXTS["vllm.txt"].replace("300.00", "50.00"))
    assert finding.share == pytest.approx(0.8)


def test_what_a_request_waits_for_at_a_server_is_told_of_the_last_load(tmp_path: Path) -> None:
    text = "".join(
        SERVER.format(load=load, rate=rate, stages=STAGES.format(queue))
        for load, rate, queue in ((1, 900, 10), (4, 1800.5, 600))
    )
    case, finding = answered(tmp_path / "perf.txt", text)
    assert sum(case.captures[0].parts.values()) == pytest.approx(1e6)
    assert finding.share == pytest.approx(0.6) and mentions(finding.advice, "instance_group")
    assert len(case.captures[0].notes) == 2


def test_the_csv_of_perf_analyzer_says_the_same(tmp_path: Path) -> None:
    columns = "Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,Server Compute Infer"
    text = f"Concurrency,Inferences/Second,{columns},p50 latency\n4,1800.5,50,50,600,50,250,900\n"
    case, finding = answered(tmp_path / "perf.csv", text)
    assert case.total is not None and case.total.ns == pytest.approx(1e6)
    assert finding.share == pytest.approx(0.6)


def test_numbers_that_are_written_as_strings_are_numbers(tmp_path: Path) -> None:
    of_vllm = {key: f"{value:,}" for key, value in VLLM.items()}
    of_aiperf = {key: {**entry, "avg": str(entry["avg"])} for key, entry in AIPERF.items()}
    for values in (of_vllm, of_aiperf):
        case, finding = answered(tmp_path / "r.json", json.dumps(values))
        assert case.total is not None and case.total.ns == pytest.approx(500e6)
        assert finding.share == pytest.approx(0.6)
    with pytest.raises(UserError, match="mean ttft of nan"):
        answered(tmp_path / "r.json", json.dumps({**of_vllm, "mean_ttft_ms": "NaN"}))


@pytest.mark.parametrize("name", ["vllm.json", "vllm.txt"])
def test_requests_that_failed_are_told(name: str, tmp_path: Path) -> None:
    said = {
        "vllm.json": json.dumps({**VLLM, "failed": 3}),
        "vllm.txt": TEXTS["vllm.txt"].replace("Total gen", "Failed requests:  3\nTotal gen"),
    }
    case, _ = answered(tmp_path / name, said[name])
    assert mentions(case.captures[0].notes[0], "3 of 13 requests failed")
    case, _ = answered(tmp_path / name, TEXTS[name])
    assert not any("failed" in note for note in case.captures[0].notes)


def test_a_load_whose_requests_all_failed_is_refused_with_that_reason(tmp_path: Path) -> None:
    values = {"mean_ttft_ms": 0.0, "completed": 0, "failed": 8, "request_throughput": 0.0}
    (tmp_path / "all.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match="no request was answered"):
        explain([tmp_path / "all.json"])


def test_results_without_times_and_cut_json_are_refused(tmp_path: Path) -> None:
    for name, text in (("a.txt", TEXTS["vllm.txt"].splitlines()[0] + "\n"), ("b.json", TEXTS["vllm.json"][:60])):
        (tmp_path / name).write_text(text)
        with pytest.raises(UserError):
            explain([tmp_path / name])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"mean_ttft_ms": float("nan")}, "mean ttft of nan"),
        ({"mean_itl_ms": -1.0}, "mean itl of -1"),
        ({"completed": 0}, "no request"),
        ({"completed": 0, "mean_tpot_ms": float("nan")}, "no request"),
    ],
)
def test_results_that_measure_nothing_are_refused(changed: dict[str, float], said: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(VLLM | changed))
    with pytest.raises(UserError, match=said):
        explain([tmp_path / "r.json"])


def test_loads_of_perf_analyzer_without_an_answer_are_not_the_ones_explained(tmp_path: Path) -> None:
    good = SERVER.format(load=1, rate=900, stages=STAGES.format(600))
    none = "Request concurrency: 4\n  Client:\n    Throughput: 0 infer/sec\n    Avg latency: 0 usec (standard)\n"
    case, finding = answered(tmp_path / "perf.txt", good + none)
    assert finding.share == pytest.approx(0.6) and len(case.captures[0].notes) == 2
    (tmp_path / "none.txt").write_text(none)
    with pytest.raises(UserError, match="no answers"):
        explain([tmp_path / "none.txt"])
