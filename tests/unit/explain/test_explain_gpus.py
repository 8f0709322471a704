"""A capture of several GPUs: shares of a sentence are of one whole, and no gain is longer than its critical path."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferprof.explain import answer, explain
from inferprof.explain.foreign import Foreign
from inferprof.explain.parts import parts_of
from inferprof.words import ms


@pytest.fixture(scope="module")
def two_gpus(repository: Path) -> Foreign:
    (case,) = explain([repository / "tests/data/nsys/h200x2_tensor_parallel.sqlite.xz"])
    return case


def test_the_verdicts_shares_are_of_the_iteration_that_its_parts_add_up_to(two_gpus: Foreign) -> None:
    parts = parts_of(two_gpus)
    assert parts is not None and two_gpus.total is not None
    assert two_gpus.total.ns == pytest.approx(parts[1])
    assert two_gpus.total.of.endswith("on GPU 0")
    assert two_gpus.verdict.shares is not None
    assert sum(two_gpus.verdict.shares.values()) <= 1
    assert two_gpus.verdict.shares["launch"] == pytest.approx(0.7761e6 / parts[1], rel=1e-3)


def test_together_nothing_gains_more_than_the_gpu_with_most_to_do_leaves(two_gpus: Foreign) -> None:
    gain, total = two_gpus.verdict.gain, two_gpus.total
    assert gain is not None and total is not None
    computes_and_transfers = (24_814_323 - 14_905_884) / 10  # of GPU 0, an independent script's: captures/README.md
    assert gain.high_ns == pytest.approx(total.ns - computes_and_transfers, rel=1e-3)


def test_who_waits_in_collectives_stands_in_the_answer(two_gpus: Foreign) -> None:
    text = answer.render(two_gpus)
    assert "1.49 ms" in text
    assert all(f"GPU {gpu} {ms(ns)}" in text for gpu, ns in ((0, 3.33e6), (1, 3.09e6)))
