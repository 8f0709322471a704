"""What benchmarks/continuous_batching.py makes of the moments at which tokens came."""

from __future__ import annotations

import pytest


def test_rates_and_latencies_follow_from_when_each_token_came() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from benchmarks.continuous_batching import Outcome

    # Two requests in steps of 100 ms, and a third once they are done: six steps of nine tokens.
    times = [[0.1, 0.2, 0.3], [0.101, 0.201, 0.301], [0.4, 0.5, 0.6]]
    row = Outcome("static 2", times).row(ttft_s=0.2, tpot_s=0.15)
    assert row == pytest.approx(
        {
            "policy": "static 2",
            "tokens_per_s": 9 / 0.6,
            "steps": 6,
            "tokens_per_step": 1.5,
            "step_ms": 100.0,
            "ttft_ms": 1000 * (0.1 + 0.101 + 0.4) / 3,
            "itl_ms": 100.0,
            "itl_max_ms": 100.0,
            "tpot_ms": 100.0,
            "good_per_s": 2 / 0.6,
        }
    )
