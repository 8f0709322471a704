"""A case against itself, for real: how often a duel of it is accepted, and how often a planted gain of 3 % is found.

    python benchmarks/best_live.py results/onnx/vit_tiny/fp32.onnx models/vit_tiny.yaml b1 [--backend ort_cuda]

Each round is two fresh processes of the case in random order, as `snakemake best` has them. Duels are drawn from
these pairs, each pair either way round, since neither side is the better one.
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

import numpy as np

from inferprof import documents, forked
from inferprof.best import duel
from inferprof.case import OF_DUELS

GAINS = (0.0, 0.03, 0.1)
TRIALS = 200
TIE = 1e-9
"""Added to each logarithm, so that no two are alike: of ties the tests of ranks make slow permutations."""
LIMIT_S = 60.0
"""Of a process."""


def measured(command: Sequence[str], out: Path) -> float:
    """The median of a fresh process, ns."""
    subprocess.run([*command, "--out", str(out)], check=True, capture_output=True)
    record: documents.Record = documents.read(out, "record")
    boundary = record.boundaries and record.boundaries.end_to_end
    if not (boundary and boundary.samples_ns):
        raise SystemExit(f"not measured: {record.reason}")
    return statistics.median(boundary.samples_ns)


def drawn(ratios: Sequence[float], gain: float, rng: np.random.Generator) -> duel.Duel:
    """A duel of the case with itself made faster by a share, of pairs drawn from those measured."""
    most = duel.USUAL.looks[-1]
    logs = np.log(rng.choice(ratios, most)) * rng.choice([-1, 1], most) + rng.normal(0, TIE, most)
    candidate = np.exp(logs) * (1 - gain)
    for look in duel.USUAL.looks:
        ended = duel.judge([1.0] * look, list(candidate[:look]))
        if ended.verdict != "measure more":
            break
    return ended


def figures(pairs: Sequence[tuple[float, float]], seed: int = 0) -> dict[str, float]:
    """What the pairs say, and how often duels out of them are accepted."""
    rng = np.random.default_rng(seed)
    ratios = [second / first for first, second in pairs]
    whole = duel.judge(*map(list, zip(*pairs, strict=True)))
    said = {"pairs": len(pairs), "in_order": whole.verdict, "in_order_rounds": whole.rounds}
    said |= {"spread_of_ratios": float(np.std(np.log(ratios), ddof=1)), "median_ms": pairs[0][0] / 1e6}
    for gain in GAINS:
        ended = [drawn(ratios, gain, rng) for _ in range(TRIALS)]
        said[f"accepted_{gain:.0%}"] = statistics.fmean(each.verdict == "better" for each in ended)
        said[f"rounds_{gain:.0%}"] = statistics.fmean(each.rounds for each in ended)
    return said


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", help="what the backend loads")
    parser.add_argument("spec", help="the model's description")
    parser.add_argument("shape")
    parser.add_argument("--backend", default="ort_cpu")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--budget", default="0.2", help="seconds of each process's loop")
    parser.add_argument("--out", type=Path, help="file for the pairs' medians (ns), as they come")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no pair begins")
    args = parser.parse_args()
    forked.name_study([args.backend])
    os.environ[forked.LIMIT] = str(LIMIT_S)
    inferprof = str(Path(sys.executable).parent / "inferprof")
    run = [inferprof, "run", args.backend, args.artifact, "--spec", args.spec, "--precision", "fp32"]
    run += ["--shape", args.shape, "--budget", args.budget, "--first-pass", "--only", "end_to_end"]
    order, begin = random.Random(0), time.perf_counter()
    pairs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        while len(pairs) < args.pairs and time.perf_counter() - begin < args.limit:
            number = OF_DUELS + len(pairs) + 1
            medians = {
                side: measured([*run, "--round", str(number)], Path(folder, f"r{number}.json"))
                for side in order.sample((0, 1), 2)
            }
            pairs.append((medians[0], medians[1]))
            if args.out:
                args.out.write_text(json.dumps(pairs) + "\n", encoding="utf-8")
    said = figures(pairs)
    sys.stdout.write(json.dumps(said | {"seconds": time.perf_counter() - begin}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
