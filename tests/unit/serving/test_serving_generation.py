"""Generative models under load: what is seen of tokens, and small models for real."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.facts import mentions

from inferprof import config, documents
from inferprof.case import Case, Variant
from inferprof.documents.serving import ServingPolicy
from inferprof.errors import UserError
from inferprof.queueing.policy import Curve, Times
from inferprof.queueing.simulate import Served
from inferprof.queueing.tokens import Lengths
from inferprof.run_request import RunRequest
from inferprof.serving import foreseen, generation, load, measure

MS = 1e6
CURVE = Curve.of({1: [10 * MS], 2: [12 * MS], 10: [28 * MS], 20: [48 * MS]})
MODELS = Path(__file__).parents[3] / "models"


def policy(**given: Any) -> ServingPolicy:
    asked = {"name": "c", "policy": "continuous", "max_batch": 4, "slo_ms": 100, "tpot_ms": 20, "percentile": 50}
    return config.serving_entry(asked | {"prompts": [5, 10], "new_tokens": [2, 6], "seconds": 5} | given)


class Answers:
    """A generator whose answers come as the simulation says."""

    def __init__(self, asked: ServingPolicy) -> None:
        assert asked.prompts and asked.new_tokens
        self.asked = asked
        self.model: Any = self

    def of(self, count: int) -> Lengths:
        asked: Any = self.asked
        return Lengths.drawn(asked.prompts, asked.new_tokens, count, seed=7)

    def sent(self, due: Times, core: int | None = None) -> load.Run:
        answered = bench_of(self.asked)._simulated(CURVE, due)
        own = [
            np.linspace(first, done, count)
            for first, done, count in zip(answered.first, answered.served.done, answered.answers, strict=True)
        ]
        return load.Run(answered.served, due, due.size, 0, own)


def bench_of(asked: ServingPolicy) -> generation.Bench:
    generator: Any = Answers(asked)
    return generation.Bench(generator, asked, {}, 3)


def run_of(due: Sequence[float], came: Sequence[Sequence[float]]) -> load.Run:
    tokens = [MS * np.array(each, dtype=float) for each in came]
    arrived = MS * np.array(due, dtype=float)
    done = np.array([each[-1] for each in tokens])
    served = Served(arrived, arrived, done, np.ones(len(tokens), dtype=np.int64))
    return load.Run(served, arrived, len(tokens), 0, tokens)


# --- what is seen of tokens --------------------------------------------------------------------------------------


def test_rates_and_latencies_follow_from_when_each_token_came() -> None:
    # Two requests in steps of 100 ms, and a third once they are done: six steps of nine tokens.
    run = run_of([0, 0, 50], [[100, 200, 300], [101, 201, 301], [400, 500, 600]])
    seen = bench_of(policy(slo_ms=200, tpot_ms=150)).tokens(run)
    assert seen is not None
    assert (seen.steps, seen.per_step) == (6, 1.5)
    assert seen.per_s == pytest.approx(9 / 0.6)
    assert seen.ttft["mean"].value_ns == pytest.approx(MS * (100 + 101 + 350) / 3)
    assert seen.tpot["mean"].value_ns == seen.itl["mean"].value_ns == pytest.approx(100 * MS)
    assert [seen.good_share, seen.good_per_s] == pytest.approx([2 / 3, 2 / 0.6])
    assert bench_of(policy()).formed(run) == {1: 3, 2: 3}


def test_a_request_misses_its_objective_by_its_first_token_or_by_the_further_ones() -> None:
    run = run_of([0, 0, 0], [[90, 100], [150, 160], [10, 50]])
    assert bench_of(policy()).judged(run).tolist() == [90 * MS, 150 * MS, 200 * MS]
    assert bench_of(policy(tpot_ms=None)).judged(run).tolist() == [90 * MS, 150 * MS, 10 * MS]


def test_what_comes_is_what_is_replayed_and_near_what_is_predicted() -> None:
    bench = bench_of(policy(seconds=200))
    rate = 0.5 * bench.capacity(CURVE)
    run, refused = bench.run(rate)
    seen, replayed, predicted = (
        bench.tokens(run),
        bench.replayed(CURVE, bench.due(rate)),
        bench.predicted(foreseen.Rehearsal(CURVE), rate),
    )
    assert refused is None and seen is not None
    assert replayed.ttft["mean"] == pytest.approx(seen.ttft["mean"].value_ns)
    assert predicted.ttft["mean"] == pytest.approx(seen.ttft["mean"].value_ns, rel=0.1)
    assert predicted.tpot["p90"] == pytest.approx(seen.tpot["p90"].value_ns, rel=0.1)


def test_the_foreseen_rate_is_the_last_one_at_which_enough_requests_are_good() -> None:
    bench = bench_of(policy(seconds=400))
    foreseen = bench.lasting(CURVE).highest(bench.objective_ns)
    assert foreseen
    below, above = (np.quantile(bench.judged(bench.run(part * foreseen)[0]), 0.5) for part in (0.9, 1.1))
    assert below <= bench.objective_ns < above


def test_static_batches_carry_less_than_continuous_ones_where_answers_differ() -> None:
    alone = bench_of(policy(policy="none", max_batch=1)).capacity(CURVE)
    static = bench_of(policy(policy="dynamic")).capacity(CURVE)
    assert alone < static < bench_of(policy()).capacity(CURVE)


# --- for real ----------------------------------------------------------------------------------------------------


def request(batch: int, backend: str = "torch_eager", **options: Any) -> RunRequest:
    from inferprof.model import model_spec

    spec = model_spec.load(MODELS / "llm_tiny.yaml")
    case = Case(spec.name, "fp32", backend, "v", f"b{batch}_c10")
    return RunRequest(case=case, artifact=spec.path, spec=spec, variant=Variant("v", options), machine="m")


@pytest.mark.parametrize("kind", ["continuous", "dynamic"])
def test_a_small_model_answers_every_request_with_as_many_tokens_as_it_asked_for(kind: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    asked = policy(seconds=1.5, loads=[0.3], search=False, slo_ms=60_000, tpot_ms=None, policy=kind)
    content = measure.measure([request(4, threads=1)], asked)
    document: documents.Serving = documents.decode(msgspec.json.encode(content), "serving")
    assert document.failure is None
    (point,) = document.loads
    assert point.refused is None and point.tokens and point.predicted and point.replayed
    assert point.tokens.good_share == 1.0
    made = sum(int(size) * count for size, count in point.batches.items())
    assert made == pytest.approx(point.tokens.steps * point.tokens.per_step)
    assert 2 * point.requests <= made <= 6 * point.requests
    assert 0 < point.tokens.ttft["mean"].value_ns <= point.latency["mean"].value_ns
    assert {"1", "2", "4"} <= set(document.curve or {})


@pytest.mark.parametrize(
    ("asked", "of", "said"),
    [
        (policy(), request(4, backend="torch_compile"), "torch_eager"),
        (policy(), request(4, compile_mode="default"), "compile_mode"),
        (policy(loadgen=["Server"]), request(4), "LoadGen"),
        (policy(), request(2), "largest batch"),
        (policy(policy="dynamic", prompts=None, new_tokens=None, tpot_ms=None), request(4), "prompts"),
    ],
)
def test_what_a_generative_model_is_not_served_with_is_one_line(
    asked: ServingPolicy, of: RunRequest, said: str
) -> None:
    pytest.importorskip("torch")
    with pytest.raises(UserError, match=said):
        measure.measure([of], asked)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"new_tokens": None}, "go together"),
        ({"prompts": [9, 5]}, "least comes first"),
        ({"new_tokens": [1, 4]}, "new_tokens"),
        ({"max_delay_ms": 2}, "max_delay_ms"),
        ({"budget": 3}, "budget"),
        ({"policy": "dynamic", "budget": 30}, "budget"),
        ({"prompts": None, "new_tokens": None}, "prompts"),
    ],
)
def test_a_policy_of_a_generative_model_that_cannot_be_is_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        policy(**given)
    assert mentions(str(error.value), said)
