"""A case against itself, for real: how often a duel of it is accepted, and how often a planted gain of 3 % is found.

    python benchmarks/best_live.py results/onnx/vit_tiny/fp32.onnx models/vit_tiny.yaml b1 [--backend ort_cuda]

Each round is two fresh processes of the case in random order, as `snakemake best` has them. Duels are drawn from
these pairs, each pair either way round, since neither side is the better one; a gain is planted by a factor. With
--other there is a third process in each round, of a file that is faster by what was taken out of it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inferprof import documents, forked
from inferprof.best import duel
from inferprof.case import OF_DUELS

GAINS = (0.0, 0.03, 0.1)
TRIALS = 200
FEWEST = 2
"""Rounds that have a spread."""
TIE = 1e-9
"""Added to each logarithm, so that no two are alike: of ties the tests of ranks make slow permutations."""
LIMIT_S = 60.0
"""Of a process."""


def measured(command: Sequence[str], out: Path) -> float:
    """The median of a fresh process, ns."""
    done = subprocess.run([*command, "--out", str(out)], check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    record: documents.Record = documents.read(out, "record")
    boundary = record.boundaries and record.boundaries.end_to_end
    if not (boundary and boundary.samples_ns):
        raise SystemExit(f"not measured: {record.reason}")
    return statistics.median(boundary.samples_ns)


def drawn(ratios: Sequence[float], gain: float | None, rng: np.random.Generator) -> duel.Duel:
    """A duel of the case with itself made faster by a share, of pairs drawn from those measured.

    gain: None: the second of each pair is the faster one by itself.
    """
    most = duel.USUAL.looks[-1]
    ways = rng.choice([-1, 1], most) if gain is not None else np.ones(most)
    logs = np.log(rng.choice(ratios, most)) * ways + rng.normal(0, TIE, most)
    candidate = np.exp(logs) * (1 - (gain or 0.0))
    for look in duel.USUAL.looks:
        ended = duel.judge([1.0] * look, list(candidate[:look]))
        if ended.verdict != "measure more":
            break
    return ended


def figures(rounds: Sequence[Sequence[float]], seed: int = 0) -> dict[str, Any]:
    """What the rounds say, and how often duels out of them are accepted. A round: ns of the case, of the case again,
    and perhaps of the other file."""
    rng = np.random.default_rng(seed)
    ratios = [again / once for once, again, *_ in rounds]
    said: dict[str, Any] = {"pairs": len(rounds), **_in_order(rounds, 1)}
    said["median_ms"] = statistics.median(row[0] for row in rounds) / 1e6
    said["spread_of_ratios"] = float(np.std(np.log(ratios), ddof=1))
    for gain in GAINS:
        ended = [drawn(ratios, gain, rng) for _ in range(TRIALS)]
        said |= {f"{name}_{gain:.0%}": value for name, value in _ends(ended).items()}
    if len(rounds[0]) > 2:
        of_other = [row[2] / row[0] for row in rounds]
        own = {"gain": 1 - statistics.median(of_other), **_in_order(rounds, 2)}
        said["other"] = own | _ends([drawn(of_other, None, rng) for _ in range(TRIALS)])
    return said


def _in_order(rounds: Sequence[Sequence[float]], side: int) -> dict[str, Any]:
    """The duel of the rounds as they came."""
    for look in duel.USUAL.looks:
        ended = duel.judge([row[0] for row in rounds[:look]], [row[side] for row in rounds[:look]])
        if ended.verdict != "measure more" or look >= len(rounds):
            break
    return {"in_order": ended.verdict, "in_order_rounds": ended.rounds}


def _ends(ended: Sequence[duel.Duel]) -> dict[str, float]:
    accepted = statistics.fmean(each.verdict == "better" for each in ended)
    return {"accepted": accepted, "rounds": statistics.fmean(each.rounds for each in ended)}


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", help="what the backend loads")
    parser.add_argument("spec", help="the model's description")
    parser.add_argument("shape")
    parser.add_argument("--other", help="the same with less work in it")
    parser.add_argument("--backend", default="ort_cpu")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--budget", default="0.2", help="seconds of each process's loop")
    parser.add_argument("--out", type=Path, help="file for the rounds' medians (ns), as they come")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no round begins")
    args = parser.parse_args()
    forked.name_study([args.backend])
    os.environ[forked.LIMIT] = str(LIMIT_S)
    command = [sys.executable, "-m", "inferprof", "run", args.backend]
    flags = ["--spec", args.spec, "--precision", "fp32", "--shape", args.shape]
    flags += ["--budget", args.budget, "--first-pass", "--only", "end_to_end"]
    sides = [args.artifact] * 2 + ([args.other] if args.other else [])
    order, begin = random.Random(0), time.perf_counter()
    rounds: list[list[float]] = []
    with tempfile.TemporaryDirectory() as folder:
        while len(rounds) < FEWEST or (len(rounds) < args.pairs and time.perf_counter() - begin < args.limit):
            number = OF_DUELS + len(rounds) + 1
            medians = {
                side: measured(
                    [*command, sides[side], *flags, "--round", str(number)], Path(folder, f"r{number}.json")
                )
                for side in order.sample(range(len(sides)), len(sides))
            }
            rounds.append([medians[side] for side in range(len(sides))])
            if args.out:
                args.out.write_text(json.dumps(rounds) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(figures(rounds) | {"seconds": time.perf_counter() - begin}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
