"""Whole searches for the best case over made-up effects and noise: how often they are wrong, and what they take.

    python benchmarks/best_search.py [--searches 100] [--spread 0.02] [--gpu]

Each is the search of `snakemake best` for ViT-Tiny with all that ONNX Runtime and torch are tried with on a CPU of
eight threads (--gpu: on an H100); its rounds are drawn instead of measured. Of three kinds: no change has an effect
(copies); one picked at random saves 3 % (planted); a third of the changes saves up to 40 %, a third costs up to 40 %
(mixed). Effects multiply, so that the best of all combinations is known.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from inferprof import study
from inferprof.best import search, space
from inferprof.best.rounds import Rounds
from inferprof.best.space import Spot
from inferprof.documents import Record, Trail
from inferprof.findings import Finding
from inferprof.machine.hardware import Gpu, Machine

ROOT: Final = Path(__file__).resolve().parents[1]
MODEL: Final = "vit_tiny"
PACKAGES: Final = {"onnxruntime-gpu": "1.31.1", "torch": "2.11.0"}
CPU: Final = Machine(gpu=None, packages=PACKAGES, label="cpu-made-up", threads=8)
GPU: Final = Machine(Gpu("NVIDIA H100", (9, 0), 80 << 30, "GPU-0", "580"), PACKAGES, label="gpu-made-up", threads=8)
PLANTED: Final = 0.03
MOST: Final = 0.4
"""Of the time, that a change of the kind `mixed` saves or costs at most."""
MARGIN: Final = 0.97
ROUND_S: Final = 2.0
BASELINE_NS: Final = 10e6
Effects = Mapping[str, float]
"""A change → the time with it over that without; those that are not there change nothing."""


@dataclass
class Drawn(Rounds):
    """Rounds that nobody measures."""

    effects: Effects = field(default_factory=dict)
    spread: float = 0.0
    seed: int = 0

    def missing(self, spot: Spot, *numbers: int) -> list[str]:
        """None."""
        return []

    def record(self, spot: Spot, number: int) -> Record | None:
        """No record, but what it would have taken."""
        self.seconds.setdefault(self.file(spot, number), ROUND_S)
        return None

    def failure(self, spot: Spot, *numbers: int) -> str | None:
        """None fails."""
        return None

    def samples(self, spot: Spot, number: int) -> list[float]:
        """A time of the case, as processes differ by."""
        self.record(spot, number)
        rng = np.random.default_rng([self.seed, zlib.crc32(self.file(spot, number).encode())])
        factors = (self.effects.get(change, 1.0) for change in changes(spot))
        return [BASELINE_NS * math.prod(factors) * math.exp(rng.normal(0, self.spread))]


class Simulated(search.Search):
    """A search without diagnoses."""

    def findings(self, spot: Spot) -> list[tuple[str, Finding]]:
        """Nothing is advised."""
        self.rounds.record(spot, 0)
        return []

    def _wait_for(self, files: list[str]) -> None:
        """All is there that a search needs."""


def changes(spot: Spot) -> Iterator[str]:
    """What a case differs by from the baseline, in a runtime of its own each."""
    yield f"backend={spot.case.backend}"
    yield from (f"{spot.case.backend}:{name}={value}" for name, value in spot.variant.options.items())


def planned(machine: Machine) -> study.Study:
    """The study whose search it is."""
    content = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    first = "ort_cpu" if machine.gpu is None else "ort_cuda"
    keys: dict[str, Any] = {
        "models": [MODEL],
        "backends": [first, "torch_eager"],
        "precisions": ["fp32"],
        "shapes": ["b1"],
    }
    keys |= {"profilers": [], "variants": [{"name": "default"}], "baseline": f"fp32/{first}/default"}
    return study.plan({**content, **keys, "best": {"budget_min": 10_000}}, ROOT / "models", machine)


def values(of: study.Study) -> dict[str, list[str]]:
    """What may be chosen → the changes that choose it, but for what it is at the beginning."""
    begin = space.baseline(of, MODEL, "b1")
    others: dict[str, list[str]] = {}
    for backend in of.config["backends"]:
        spot = begin.having(begin.variant, backend=backend)
        for name, tried in space.tries(of, backend).items():
            able = [v for v in tried if (it := space.named(of, {name: v})) and not space.refusal(of, spot.having(it))]
            others[f"{backend}:{name}"] = [f"{backend}:{name}={value}" for value in able]
    others["backend"] = [f"backend={backend}" for backend in of.config["backends"][1:]]
    return others


def effects(kind: str, of: study.Study, rng: np.random.Generator) -> dict[str, float]:
    """What the changes do."""
    every = [change for own in values(of).values() for change in own]
    if kind == "planted":
        first = of.config["backends"][0]
        return {str(rng.choice([change for change in every if change.startswith(first)])): 1 - PLANTED}
    thirds = {change: int(rng.integers(3)) for change in every if kind == "mixed"}
    return {change: 1 + (third - 1) * float(rng.uniform(0, MOST)) for change, third in thirds.items()}


def fastest(of: study.Study, effect: Effects) -> tuple[dict[str, float], int]:
    """The time of the best of all combinations in each runtime over the baseline's, and how many there are."""
    choices = values(of)
    times, count = {}, 0

    def best(names: Iterable[str]) -> float:
        return math.prod(min([1.0, *(effect.get(change, 1.0) for change in choices[name])]) for name in names)

    for backend in of.config["backends"]:
        own = [name for name in choices if name.startswith(f"{backend}:")]
        times[backend] = effect.get(f"backend={backend}", 1.0) * best(own)
        count += math.prod(1 + len(choices[name]) for name in own)
    return times, count


def searched(of: study.Study, effect: Effects, spread: float, seed: int) -> tuple[Trail, int]:
    """The trail of a search, and how many rounds it took."""
    own = Simulated(of, Path("nowhere"), MODEL)
    own.rounds = Drawn(own.rounds.results, own.rounds.machine, own.rounds.boundary, 60.0, False)
    own.rounds.effects, own.rounds.spread, own.rounds.seed = effect, spread, seed
    trail = own.advance()
    assert trail.ended, trail.stopped
    return trail, len(own.rounds.seconds)


def figures(kind: str, of: study.Study, searches: int, spread: float) -> dict[str, Any]:
    """What came of the searches of a kind."""
    rng = np.random.default_rng(0)
    moved, confirmed, near, near_own, rounds, grid = 0, 0, [], [], [], 0
    for seed in range(searches):
        effect = effects(kind, of, rng)
        trail, taken = searched(of, effect, spread, seed)
        times, grid = fastest(of, effect)
        now = math.prod(effect.get(change, 1.0) for change in _changes_of(trail))
        moved += trail.best != trail.baseline
        confirmed += bool(trail.steps) and trail.steps[-1].decision == "confirmed"
        near.append(min(times.values()) / now)
        near_own.append(times[str(trail.best).split("/")[1]] / now)
        rounds.append(taken)
    return {
        "moved": moved / searches,
        "confirmed": confirmed / searches,
        "of_the_best": statistics.fmean(near),
        "of_the_best_in_its_runtime": statistics.fmean(near_own),
        "within_3%": statistics.fmean(share >= MARGIN for share in near),
        "rounds": statistics.fmean(rounds),
        "combinations": grid,
    }


def _changes_of(trail: Trail) -> Iterator[str]:
    _, backend, _ = str(trail.best).split("/")
    yield f"backend={backend}"
    yield from (f"{backend}:{name}={value}" for name, value in trail.options.items())


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=100, help="of each kind")
    parser.add_argument("--spread", type=float, default=0.02, help="by how much processes of a case differ")
    parser.add_argument("--gpu", action="store_true")
    args = parser.parse_args()
    of = planned(GPU if args.gpu else CPU)
    for kind in ("copies", "planted", "mixed"):
        said = figures(kind, of, args.searches, args.spread)
        sys.stdout.write(json.dumps({"kind": kind, "spread": args.spread, **said}) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
