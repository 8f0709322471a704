"""A case against itself, for real: how often a duel of it is accepted, and how often a planted gain of 3 % is found.

    python benchmarks/best_live.py [--duels 30] [--provider cuda] [--fresh session]

The case is a graph of 100 matrix products in ONNX Runtime; the planted one lacks 3 of 103. Each round is a fresh
process of either, in random order (--fresh session: a fresh session in this process, where processes take too long).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from inferprof.best import duel

PRODUCTS = 100
PLANTED = 103
SIZE = {"cpu": 96, "cuda": 1024}
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
WARM = 3
Round = Callable[[int], float]
"""Products of a graph → its median in a fresh process, s."""


def graph(products: int, size: int) -> bytes:
    """A chain of so many products."""
    from onnx import TensorProto, helper, numpy_helper

    weight = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32) * size**-0.5
    nodes = [helper.make_node("MatMul", [f"x{i}", "w"], [f"x{i + 1}"]) for i in range(products)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, size]) for name in ("x0", f"x{products}")]
    body = helper.make_graph(nodes, "chain", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def measured(products: int, provider: str, seconds: float) -> float:
    """The median of a fresh session, s."""
    import onnxruntime

    if provider == "cuda":
        onnxruntime.preload_dlls()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    content = graph(products, SIZE[provider])
    session = onnxruntime.InferenceSession(content, options, providers=[PROVIDERS[provider]])
    if session.get_providers()[0] != PROVIDERS[provider]:
        raise SystemExit(f"ONNX Runtime has no {PROVIDERS[provider]} here")
    feeds = {"x0": np.ones((SIZE[provider],) * 2, np.float32)}
    for _ in range(WARM):
        session.run(None, feeds)
    times: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def fought(incumbent: int, candidate: int, one_round: Round, order: random.Random) -> duel.Duel:
    """A duel to its end, as a search has it."""
    medians: dict[str, list[float]] = {"incumbent": [], "candidate": []}
    sides = {"incumbent": incumbent, "candidate": candidate}
    for look in duel.USUAL.looks:
        while len(medians["incumbent"]) < look:
            for name in order.sample(sorted(sides), 2):
                medians[name].append(one_round(sides[name]))
        ended = duel.judge(medians["incumbent"], medians["candidate"])
        if ended.verdict != "measure more":
            break
    return ended


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--duels", type=int, default=30)
    parser.add_argument("--planted", type=int, default=5, help="duels with the planted gain")
    parser.add_argument("--provider", choices=sorted(PROVIDERS), default="cpu")
    parser.add_argument("--fresh", choices=("process", "session"), default="process")
    parser.add_argument("--seconds", type=float, default=0.2, help="of each round")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no duel begins")
    parser.add_argument("--round", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.round:
        sys.stdout.write(f"{measured(args.round, args.provider, args.seconds)}\n")
        return 0

    def in_process(products: int) -> float:
        own = ["--provider", args.provider, "--seconds", str(args.seconds), "--round", str(products)]
        done = subprocess.run([sys.executable, __file__, *own], capture_output=True, text=True, check=True)
        return float(done.stdout)

    def in_session(products: int) -> float:
        return measured(products, args.provider, args.seconds)

    one_round = in_process if args.fresh == "process" else in_session
    order, begin = random.Random(0), time.perf_counter()
    wanted = [(PLANTED, PRODUCTS)] * args.planted + [(PRODUCTS, PRODUCTS)] * args.duels
    ended: dict[str, list[duel.Duel]] = {"planted": [], "itself": []}
    for incumbent, candidate in order.sample(wanted, len(wanted)):
        if time.perf_counter() - begin < args.limit:
            kind = "itself" if incumbent == candidate else "planted"
            ended[kind].append(fought(incumbent, candidate, one_round, order))
    figures = {
        kind: {
            "duels": len(own),
            "accepted": sum(each.verdict == "better" for each in own),
            "undecided": sum(each.verdict == "undecided" for each in own),
            "rounds": statistics.fmean(each.rounds for each in own) if own else 0,
        }
        for kind, own in ended.items()
    }
    sys.stdout.write(json.dumps(figures | {"seconds": time.perf_counter() - begin}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
