"""transformers' continuous batching against static batching: the same requests, and what each step makes.

    python benchmarks/continuous_batching.py models/llm_tiny.yaml --requests 16 --prompts 8 64 --new 16 --static 4 16

All requests are there at once. static N: batches of N in their order, padded on the left to the longest prompt, each
until its last token. continuous B: the manager behind generate_batch, whose steps hold up to B tokens, of prompts and
of requests that decode (0: as many as it likes). Tokens per second are the tokens of a step over its time, so both
are told. TTFT counts from when all requests are there. Good: within both objectives.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers

from inferprof.model import model_spec, torch_source

GAP: Final = 0.3
"""Of the median ITL: tokens that are further apart are of two steps."""
WARM_UP: Final = 4
"""Tokens of each request before."""
Times = list[list[float]]
"""Of each request the seconds, from the start, at which its tokens came."""


@dataclass(frozen=True)
class Outcome:
    """A policy, and when each token came. The prompts are all there at 0."""

    policy: str
    times: Times

    def row(self, ttft_s: float, tpot_s: float) -> dict[str, Any]:
        """What the table says of it, by the definitions of docs/generation.md."""
        first = np.array([each[0] for each in self.times])
        tpot = np.array([(each[-1] - each[0]) / (len(each) - 1) for each in self.times])
        itl = np.concatenate([np.diff(each) for each in self.times])
        came = np.sort(np.concatenate([np.array(each) for each in self.times]))
        steps = 1 + int((np.diff(came) > GAP * np.median(itl)).sum())
        end = float(came[-1])
        return {
            "policy": self.policy,
            "tokens_per_s": len(came) / end,
            "steps": steps,
            "tokens_per_step": len(came) / steps,
            "step_ms": 1e3 * end / steps,
            "ttft_ms": 1e3 * float(first.mean()),
            "itl_ms": 1e3 * float(np.median(itl)),
            "itl_max_ms": 1e3 * float(itl.max()),
            "tpot_ms": 1e3 * float(tpot.mean()),
            "good_per_s": float(((first <= ttft_s) & (tpot <= tpot_s)).sum()) / end,
        }


def static(model: Any, prompts: Sequence[list[int]], new: int, size: int) -> Times:
    """Batch after batch."""
    start = time.perf_counter()
    batches = [prompts[begin : begin + size] for begin in range(0, len(prompts), size)]
    return [times for batch in batches for times in _batch(model, batch, new, start)]


def _batch(model: Any, batch: Sequence[list[int]], new: int, start: float) -> Times:
    longest = max(map(len, batch))
    ids = torch.tensor([[0] * (longest - len(each)) + each for each in batch], device=model.device)
    mask = torch.tensor([[0] * (longest - len(each)) + [1] * len(each) for each in batch], device=model.device)
    came: list[float] = []

    def note(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores[0, 0].item()  # waits for the device
        came.append(time.perf_counter() - start)
        return scores

    model.generate(ids, attention_mask=mask, generation_config=_config(new), logits_processor=[note])
    return [came] * len(batch)


def continuous(model: Any, prompts: Sequence[list[int]], new: int, budget: int) -> Times:
    """By a manager that is warm, without what that left in the cache; its clock is ours, time.perf_counter."""
    given = transformers.ContinuousBatchingConfig(
        max_batch_tokens=budget or None, allow_block_sharing=False, auto_switch_to_flash=False
    )
    with model.continuous_batching_context_manager(
        generation_config=_config(new), continuous_batching_config=given, block=True, timeout=60
    ) as manager:
        for tokens in (WARM_UP, new):
            asked = manager.add_requests(list(prompts), max_new_tokens=tokens, record_timestamps=True)
            outputs = _finished(manager, len(asked))
    if failed := [each.error for each in outputs if each.error or len(each.timestamps) != new]:
        raise SystemExit(f"continuous batching: {len(failed)} requests failed: {failed[0]}")
    start = min(each.created_time for each in outputs)
    return [[moment - start for moment in each.timestamps] for each in outputs]


def _finished(manager: Any, count: int) -> list[Any]:
    results: list[Any] = []
    while len(results) < count:
        result = manager.get_result(timeout=1)
        if result and result.is_finished():
            results.append(result)
        elif not result and not manager.is_running():
            raise SystemExit("the thread of continuous batching ended")
    return results


def _config(new: int) -> transformers.GenerationConfig:
    return transformers.GenerationConfig(
        max_new_tokens=new, min_new_tokens=new, do_sample=False, eos_token_id=-1, pad_token_id=0
    )


def outcomes(model: Any, prompts: Sequence[list[int]], asked: argparse.Namespace) -> Iterator[Outcome]:
    """Each policy measured, once it is warm."""
    for size in asked.static:
        static(model, prompts[:size], WARM_UP, size)
        yield Outcome(f"static {size}", static(model, prompts, asked.new, size))
    for budget in asked.budget:
        yield Outcome(f"continuous {budget or 'unlimited'}", continuous(model, prompts, asked.new, budget))


def main() -> None:
    """Print a row for each policy as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--prompts", type=int, nargs=2, default=(32, 512), metavar=("FROM", "TO"))
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--static", type=int, nargs="*", default=(8, 64))
    parser.add_argument("--budget", type=int, nargs="*", default=(0,))
    parser.add_argument("--objectives", type=float, nargs=2, default=(1.0, 0.1), metavar=("TTFT_S", "TPOT_S"))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    transformers.logging.set_verbosity_error()
    spec = model_spec.load(asked.spec)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch_source.load(spec, "eager").module.model.to(getattr(torch, asked.dtype)).to(device)
    rng = np.random.default_rng(0)
    low, high = asked.prompts
    lengths = rng.integers(low, high, asked.requests, endpoint=True)
    prompts = [rng.integers(1, model.config.vocab_size, count).tolist() for count in lengths]
    rows = []
    for outcome in outcomes(model, prompts, asked):
        rows.append(outcome.row(*asked.objectives))
        print(
            "  ".join(
                f"{name} {value if isinstance(value, str) else f'{value:.4g}'}" for name, value in rows[-1].items()
            )
        )
        if asked.out:
            asked.out.write_text(json.dumps({"device": device, "rows": rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
