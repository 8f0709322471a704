"""The checks of decode steps, on planted cases: each found, and clear where nothing is planted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.diagnosis.asking import approx, ask
from tests.unit.facts import facts, mentions
from tests.unit.report.conftest import Results
from tests.unit.report.test_report_generation import CEILINGS, WEIGHTS, told

from inferprof.case import Case
from inferprof.diagnosis import frames
from inferprof.findings import OF_OTHERS, Answer
from inferprof.units import MIB

EAGER, GRAPH = "llm/bf16/torch_eager/eager", "llm/bf16/torch_eager/graph"
ON = {"options": {"cuda_graph": True}, "protocol": {"graph": True}}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    made = Results(tmp_path / "results")
    made.write(f"{made.machine}/ceilings.json", CEILINGS)
    return made


def memory_of(results: Results, mib: int) -> None:
    cpu = {"model": "made up", "memory_mib": mib}
    results.write(f"{results.machine}/environment.json", {"status": "ok", "gpus": [], "cpu": cpu})


def answer(results: Results, check: str, case: str) -> Answer:
    return ask(check, frames.load(results.root, results.machine, Case.from_path(case)))


# --- the host ---


def test_a_step_that_a_graph_makes_much_faster_waits_for_the_host(results: Results) -> None:
    results.ok(f"{EAGER}/b1_c100", 9.0, rounds=3, gpu=True, **told(1, context=100))
    results.ok(f"{GRAPH}/b1_c100", 3.0, rounds=3, gpu=True, **told(1, context=100), **ON)
    (finding,) = answer(results, "host_bound_decode", f"{EAGER}/b1_c100").findings
    assert finding.bottleneck == "launch"
    assert finding.gain is not None
    assert 9 <= finding.gain.low_ns / 1e6 <= finding.gain.high_ns / 1e6 <= 10  # end_to_end: 14.4 and 4.8 ms
    assert finding.share == approx(2 / 3, abs=0.02)
    assert (finding.options, finding.tried and finding.tried.variant) == ({"cuda_graph": True}, "graph")


def test_a_step_that_a_graph_does_not_help_is_clear_and_so_is_the_graph(results: Results) -> None:
    results.ok(f"{EAGER}/b1_c100", 9.0, rounds=3, gpu=True, **told(1, context=100))
    results.ok(f"{GRAPH}/b1_c100", 8.8, rounds=3, gpu=True, **told(1, context=100), **ON)
    for case in (EAGER, GRAPH):
        assert answer(results, "host_bound_decode", f"{case}/b1_c100").verdict == "clear"


def test_without_a_graph_to_compare_with_the_host_is_not_assessed(results: Results) -> None:
    results.ok(f"{EAGER}/b1_c100", 9.0, gpu=True, **told(1, context=100))
    not_assessed = answer(results, "host_bound_decode", f"{EAGER}/b1_c100")
    assert mentions(not_assessed.reason, "needs", "cuda_graph: true", "compile_mode: reduce-overhead")


# --- the prefill ---


def test_a_prefill_of_many_decode_steps_blocks_them_and_a_chunk_is_advised(results: Results) -> None:
    for tokens, took in ((64, 20.0), (256, 60.0), (1024, 300.0)):
        results.ok(f"{EAGER}/b1_p{tokens}", took, **told(1, tokens=tokens))
    results.ok(f"{EAGER}/b1_c100", 10.0, **told(1, context=100))
    results.ok(f"{EAGER}/b1_p64c100", 900.0, **told(1, tokens=64, context=100))
    (finding,) = answer(results, "prefill_blocks_decode", f"{EAGER}/b1_c100").findings
    assert facts(finding.reason, "b1_p1024")[0] == "b1_p1024"
    assert finding.evidence["steps"] == approx(30, rel=0.02)
    assert finding.evidence["chunk_tokens"] == 64  # 2 steps; 256 tokens would be 6
    assert (finding.evidence["gain_low_ns"], finding.share, finding.gain) == (0.0, None, None)
    assert finding.evidence["gain_high_ns"] == approx(280e6 * 1.01, rel=0.02)


def test_a_short_prefill_blocks_nothing(results: Results) -> None:
    results.ok(f"{EAGER}/b1_p64", 20.0, **told(1, tokens=64))
    results.ok(f"{EAGER}/b1_c100", 10.0, **told(1, context=100))
    assert answer(results, "prefill_blocks_decode", f"{EAGER}/b1_c100").verdict == "clear"


def test_prefills_of_other_variants_say_nothing(results: Results) -> None:
    results.ok(f"{GRAPH}/b1_p64", 900.0, **told(1, tokens=64))
    results.ok(f"{EAGER}/b1_c100", 10.0, **told(1, context=100))
    assert mentions(
        answer(results, "prefill_blocks_decode", f"{EAGER}/b1_c100").reason, "needs", "prefill", "b1_p512"
    )


# --- the memory ---


def test_a_memory_for_a_few_rows_bounds_what_decode_carries(results: Results) -> None:
    memory_of(results, 3000)  # 2,700 usable, 1,000 of weights: 16 rows of 101 MiB
    results.ok(f"{EAGER}/b2_c100", 10.0, **cheap(2, 100))
    (finding,) = answer(results, "memory_bounds_batch", f"{EAGER}/b2_c100").findings
    # 1 ms for the weights, 0.101 for each row: 16 rows take 2.616 ms, of any number 9,901 tokens/s are left.
    assert finding.evidence["rows"] == 16
    assert finding.evidence["tokens_per_s"] == approx(16 / 2.616e-3)
    assert finding.evidence["most_per_s"] == approx(1 / 0.101e-3)
    assert finding.evidence["gain_high_per_s"] == approx(32 / 2.616e-3 - 16 / 2.616e-3)
    assert finding.evidence["gain_low_per_s"] == 0


def test_a_memory_for_as_many_rows_as_the_roofs_can_use_is_clear(results: Results) -> None:
    memory_of(results, 100_000)
    results.ok(f"{EAGER}/b2_c100", 10.0, **cheap(2, 100))
    clear = answer(results, "memory_bounds_batch", f"{EAGER}/b2_c100")
    assert (clear.verdict, clear.evidence["rows"]) == ("clear", (90_000 - 1000) * 2 // 202)
    results.ok(f"{EAGER}/b1_c100", 10.0, **told(1, context=100))  # bound by computing from two rows on
    memory_of(results, 3000)
    assert answer(results, "memory_bounds_batch", f"{EAGER}/b1_c100").verdict == "clear"


def test_without_the_size_of_the_memory_it_is_not_assessed(results: Results) -> None:
    results.ok(f"{EAGER}/b2_c100", 10.0, **cheap(2, 100))
    assert mentions(answer(results, "memory_bounds_batch", f"{EAGER}/b2_c100").reason, "needs", "memory", "probe")


def cheap(batch: int, context: int) -> dict[str, Any]:
    """A step whose products take no time worth speaking of."""
    operation = told(batch, context=context)["operation"]
    assert operation["weights_read"] == WEIGHTS == 1000 * MIB
    return {"operation": {**operation, "flops": batch}}


# --- other cases ---


@pytest.mark.parametrize("check", ["host_bound_decode", "prefill_blocks_decode", "memory_bounds_batch"])
def test_a_case_without_a_cache_is_another_s_and_a_prefill_is_no_decode_step(results: Results, check: str) -> None:
    results.ok("vit/bf16/torch_eager/eager/b1", 9.0)
    results.ok(f"{EAGER}/b1_p100", 9.0, **told(1, tokens=100))
    assert answer(results, check, "vit/bf16/torch_eager/eager/b1").reason in OF_OTHERS
    assert mentions(answer(results, check, f"{EAGER}/b1_p100").reason, "needs", "decode step", "b8_c512")
