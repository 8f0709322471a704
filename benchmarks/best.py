"""How often the search for the best case is wrong, over measured noise; needs no GPU.

    python benchmarks/best.py [--trials 1000] [--only single_shot]

The noise is that of studies/reference and studies/puzzles: runs of consecutive samples out of the records, and what
processes of one case differ by. Prints how often a copy and planted gains are accepted (duels), how near to the best
successive halving comes and with which share of the samples (halving), and the share of a single-shot tuner's wins
that vanish (single_shot). benchmarks/best_search.py runs whole searches.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inferprof import documents, stats
from inferprof.best import duel, halving

STUDIES = Path(__file__).resolve().parents[1] / "studies"
Samples = np.ndarray
Space = Mapping[str, Samples]
"""Case without model and shape → its end_to_end samples, ns."""
BUDGET = 0.06
"""Of all samples; a record of a few gives one at least, so that more are taken."""
FEWEST = 4
"""Cases that a space needs to be worth a search."""
GAINS = (0.0, 0.03, 0.1)
RUNS = 8
"""Runs that a record falls into."""
STEADY = 0.03
"""Half the interval of a median, as a share of it: wider ones are in doubt, and no duel can tell so little."""
MARGIN = 0.97
SEED = 0
SEEN = (0.0, 0.01, 0.03, 0.1, 1.0)
"""Shares of the time that a tuner sees saved, between which its wins are told apart."""
TRIES = 40
"""Searches through each space."""
WALKS = 400
"""Of a single-shot tuner through each space."""
Rounds = Mapping[tuple[str, str, str], Sequence[Samples]]
"""Study, model and shape, rest of the case → the samples of each of its rounds."""


def rounds() -> Rounds:
    """All that the bundles hold by end_to_end."""
    measured: defaultdict[tuple[str, str, str], list[Samples]] = defaultdict(list)
    for path in sorted(STUDIES.rglob("*.zip")):
        with zipfile.ZipFile(path) as bundle:
            for name in sorted(bundle.namelist()):
                if "/benchmark/" in name and name.endswith(".json"):
                    record = documents.decode(bundle.read(name), "record")
                    boundary = record.boundaries and record.boundaries.end_to_end
                    if record.status == "ok" and boundary and boundary.samples_ns:
                        case = record.case
                        place = (path.stem, f"{case.model} {case.shape}")
                        rest = f"{case.precision}/{case.backend}/{case.variant}"
                        measured[(*place, rest)].append(np.array(boundary.samples_ns, dtype=float))
    return measured


def spreads(measured: Rounds) -> np.ndarray:
    """By how much the processes of a case differ: the standard deviation of their log medians, case by case.

    The rounds of these cases were not measured in turns: those of a study that are differ by less.
    """
    repeated = [each for each in measured.values() if len(each) > 1]
    return np.array([np.std([math.log(np.median(samples)) for samples in each], ddof=1) for each in repeated])


def process(samples: Samples, count: int, spread: float, rng: np.random.Generator) -> Samples:
    """So many samples as another process of the case might have measured them: runs of consecutive ones."""
    length = max(1, samples.size // RUNS)
    starts = rng.integers(samples.size, size=math.ceil(count / length))
    run = samples[(starts[:, None] + np.arange(length)).ravel()[:count] % samples.size]
    return run * math.exp(rng.normal(0, spread))


def fought(samples: Samples, gain: float, spread: float, rng: np.random.Generator) -> duel.Duel:
    """A case against itself made faster by a share."""
    looks = duel.USUAL.looks
    sides = [
        [float(np.median(process(samples, samples.size, spread, rng))) * factor for _ in range(looks[-1])]
        for factor in (1.0, 1 - gain)
    ]
    for look in looks:
        ended = duel.judge(sides[0][:look], sides[1][:look])
        if ended.verdict != "measure more":
            break
    return ended


def searched(space: Space, noise: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """The exhaustive best time over that of the search's, and the share of the samples that it took."""
    taken = 0

    def sample(name: str, share: float) -> Sequence[float]:
        nonlocal taken
        count = max(1, round(share * space[name].size))
        taken += count
        return list(process(space[name], count, float(rng.choice(noise)), rng))

    names = [str(name) for name in rng.permutation(list(space))]
    winner = halving.halve(names, sample, BUDGET)[-1].medians[0][0]
    times = {name: float(np.median(samples)) for name, samples in space.items()}
    return min(times.values()) / times[winner], taken / sum(samples.size for samples in space.values())


def single_shot(space: Space, noise: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[float, bool]]:
    """A tuner that takes each case with a lower median than the one it has: the gain that it saw in each win, and
    whether that win vanishes when both are measured again."""

    def shot(name: str) -> float:
        return float(np.median(process(space[name], space[name].size, float(rng.choice(noise)), rng)))

    best, *others = (str(name) for name in rng.permutation(list(space)))
    lowest = shot(best)
    for name in others:
        median = shot(name)
        if median < lowest:
            yield 1 - median / lowest, shot(name) >= shot(best)
            best, lowest = name, median


def is_steady(samples: Samples) -> bool:
    """Whether a record tells its own median within STEADY."""
    interval = stats.median_interval(samples)
    return interval is not None and interval[1] - interval[0] <= 2 * STEADY * float(np.median(samples))


def duels(
    cases: Sequence[Samples], noise: Sequence[float], trials: int, rng: np.random.Generator
) -> dict[str, float]:
    """How duels end with a copy, and with a planted gain."""
    ended = {
        gain: [fought(cases[i % len(cases)], gain, float(rng.choice(noise)), rng) for i in range(trials)]
        for gain in GAINS
    }
    better = {
        f"accepted_{gain:.0%}": float(np.mean([e.verdict == "better" for e in own])) for gain, own in ended.items()
    }
    return better | {f"rounds_{gain:.0%}": float(np.mean([e.rounds for e in own])) for gain, own in ended.items()}


def of_duels(measured: Rounds, trials: int) -> dict[str, dict[str, float]]:
    """How duels over this noise end."""
    rng, noise = np.random.default_rng(SEED), spreads(measured)
    cases = [samples for each in measured.values() for samples in each]
    steady = [samples for samples in cases if is_steady(samples)]
    return {
        "measured": {"records": len(cases), "steady": len(steady), "cases_with_rounds": len(noise)},
        "processes_alike": duels(steady, [0.0], trials, rng),
        "processes_differ_by_2%": duels(steady, [0.02], trials, rng),
        "processes_differ_as_measured": duels(steady, list(noise), trials, rng),
        "records_in_doubt_too": duels(cases, [0.02], trials, rng),
    }


def of_halving(measured: Rounds) -> dict[str, float]:
    """How near to the best of each space successive halving comes."""
    rng, noise = np.random.default_rng(SEED), spreads(measured)
    every = [searched(space, noise, rng) for space in wide(measured) for _ in range(TRIES)]
    reached, taken = (np.array(column) for column in zip(*every, strict=True))
    return {
        "of_exhaustive_best": float(np.mean(reached)),
        "within_3%": float(np.mean(reached >= MARGIN)),
        "share_of_samples": float(np.mean(taken)),
    }


def of_single_shot(measured: Rounds) -> dict[str, float]:
    """Which share of a single-shot tuner's wins vanishes, of all and by the gain that it saw."""
    rng, noise = np.random.default_rng(SEED), spreads(measured)
    spaces = wide(measured)
    wins = [win for space in spaces for _ in range(WALKS) for win in single_shot(space, noise, rng)]
    said: dict[str, float] = {"spaces": len(spaces), "wins": len(wins)}
    for low, high in itertools.pairwise(SEEN):
        own = [vanished for gain, vanished in wins if low <= gain < high]
        said |= {f"wins_{low:.0%}_to_{high:.0%}": len(own), f"vanish_{low:.0%}_to_{high:.0%}": float(np.mean(own))}
    return said | {"vanish": float(np.mean([vanished for _, vanished in wins]))}


def wide(measured: Rounds) -> list[Space]:
    """The cases of each model at a shape, by their first rounds, where they are worth a search."""
    spaces: defaultdict[tuple[str, str], dict[str, Samples]] = defaultdict(dict)
    for (study, place, rest), each in measured.items():
        spaces[study, place][rest] = each[0]
    return [space for space in spaces.values() if len(space) >= FEWEST]


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--only", choices=("duels", "halving", "single_shot"))
    args, measured = parser.parse_args(), rounds()
    parts: dict[str, Callable[[], Mapping[str, Any]]] = {
        "duels": lambda: of_duels(measured, args.trials),
        "halving": lambda: of_halving(measured),
        "single_shot": lambda: of_single_shot(measured),
    }
    said = {name: part() for name, part in parts.items() if args.only in (None, name)}
    sys.stdout.write(json.dumps(said, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
