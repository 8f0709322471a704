"""What autotuners tried and chose, out of records with `tuning`: backends.triton_tuning.

All frames carry the columns of records.RECORD_KEY. A choice is one of a `kernel` at a `key`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pandas as pd

from inferprof.documents.record import Record, Tuning
from inferprof.tables.records import KEY, Row, exploded, frame_of, key_of, rows_of
from inferprof.units import NS_PER_S

FACTS: Final = (
    *("seconds", "compile_s", "compiled", "programs", "waves", "blocks_per_sm", "occupancy"),
    *("warps", "registers", "spills", "shared_bytes"),
)
CHOICE: Final = ("kernel", "key")
TRIALS: Final = (*CHOICE, "source", "config", "median_ns", "relative", "won", *FACTS)
CHOICES: Final = (
    *(*CHOICE, "source", "offered", "tried", "failed", "seconds", "compile_s", "compiled", "first_share"),
    *("config", "median_ns", "second", "typical", "worst"),
)
ELSEWHERE: Final = ("kernel", "config", "at_variant", "at_shape", "relative")
SHORT: Final[Mapping[str, str]] = {
    **{f"BLOCK_{size}": size for size in "MNK"},
    **{f"BLOCK_SIZE_{size}": size for size in "MNK"},
    **{
        "SPLIT_K": "split",
        "A_load_order": "a",
        "GROUP_M": "g",
        "GROUP_SIZE_M": "g",
        "num_warps": "w",
        "num_stages": "s",
        "num_ctas": "c",
    },
}
"""What a setting is called in the name of a configuration; others are written out."""
DEFAULTS: Final[Mapping[str, Any]] = {"num_ctas": 1, "A_load_order": 0, "dot_prod_mode": 0}
"""Settings that go without saying at these values: Triton's, and GemLite's."""


@exploded(*TRIALS)
def trials(record: Record) -> Iterator[Row]:
    """One row per record, choice and configuration that was timed, with TRIALS.

    relative: times as long as the fastest of the choice; None: it did not run.
    """
    for choice in record.tuning:
        fastest = choice.trials[choice.winner].median_ns
        for place, trial in enumerate(choice.trials):
            median = trial.median_ns
            yield {
                **_named(choice),
                "config": config_name(trial.config),
                "median_ns": median,
                "relative": None if median is None or fastest is None else median / fastest,
                "won": place == choice.winner,
                **{name: getattr(trial, name) for name in FACTS},
            }


@exploded(*CHOICES)
def choices(record: Record) -> Iterator[Row]:
    """One row per record and choice, with CHOICES.

    first_share: `seconds` of the first inference. second, typical, worst: how many times as long as the winner the
    next best, the middle one and the slowest that ran take; None where one alone ran.
    """
    first_s = ((record.first and record.first.first_inference_ns) or 0) / NS_PER_S
    for choice in record.tuning:
        tried = choice.trials
        times = sorted(trial.median_ns for trial in tried if trial.median_ns is not None)
        several = len(times) > 1
        yield {
            **_named(choice),
            **{"offered": choice.offered, "tried": len(tried), "failed": len(tried) - len(times)},
            "seconds": sum(trial.seconds for trial in tried),
            "compile_s": sum(trial.compile_s for trial in tried),
            "compiled": sum(trial.compiled or 0 for trial in tried),
            "first_share": choice.seconds / first_s if first_s else None,
            "config": config_name(tried[choice.winner].config),
            "median_ns": times[0] if times else None,
            "second": times[1] / times[0] if several else None,
            "typical": times[len(times) // 2] / times[0] if several else None,
            "worst": times[-1] / times[0] if several else None,
        }


def elsewhere(trials: pd.DataFrame) -> pd.DataFrame:
    """What the winner at one shape costs at the others: one row per pair, with KEY, where it won, and ELSEWHERE.

    The two choices are of one kernel, and their keys differ in one entry; of several at one key the first counts.
    relative: against the winner at `at_shape`; None: it was not tried there.
    """
    tried = rows_of(trials[trials["source"] == "tried"])
    winners = [row for row in tried if row["won"]]
    others = list({(row["machine"], row["kernel"], row["key"]): row for row in reversed(winners)}.values())[::-1]
    rows = []
    for here in winners:
        for there in others:
            if here["shape"] != there["shape"] and _one_apart(here, there):
                same = [row for row in tried if _choice(row) == _choice(there) and row["config"] == here["config"]]
                rows.append(
                    {
                        **{name: here[name] for name in (*KEY, "kernel", "config")},
                        **{"at_variant": there["variant"], "at_shape": there["shape"]},
                        "relative": same[0]["relative"] if same else None,
                    }
                )
    return frame_of(rows, [*KEY, *ELSEWHERE])


def best_known(trials: pd.DataFrame, kernel: str, key: str) -> Row | None:
    """The fastest trial of a kernel at a key, whoever made it."""
    same = trials[trials["kernel"].eq(kernel) & trials["key"].eq(key) & trials["median_ns"].notna()]
    return min(rows_of(same), key=lambda row: row["median_ns"], default=None)


def running(trials: pd.DataFrame, choice: Row) -> list[Row]:
    """The choices, one per case, that settled on the same configuration of the same kernel at the same key."""
    same = trials["won"].eq(True)
    for name in (*CHOICE, "config"):
        same &= trials[name].eq(choice[name])
    return rows_of(trials[same].drop_duplicates(KEY))


def config_name(config: Mapping[str, Any]) -> str:
    """`M64 N128 K128 g8 w4 s5`: the settings of a configuration, without what follows from the others."""
    said = {
        name: value for name, value in config.items() if DEFAULTS.get(name) != value and name not in _implied(config)
    }
    return " ".join(f"{SHORT[name]}{value}" if name in SHORT else f"{name}={value}" for name, value in said.items())


def _implied(config: Mapping[str, Any]) -> set[str]:
    """Whether sizes divide each other evenly, and the pipeline's stages where they are said twice."""
    twice = {"NUM_STAGES"} if config.get("NUM_STAGES") == config.get("num_stages") else set()
    return twice | {name for name in config if name.startswith("EVEN_")}


def _one_apart(here: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    """Whether two choices are of one kernel, on one machine, at keys that differ in one entry: the size."""
    if (here["machine"], here["kernel"]) != (there["machine"], there["kernel"]):
        return False
    key, other = json.loads(here["key"]), json.loads(there["key"])
    return key.keys() == other.keys() and [key[name] != other[name] for name in key].count(True) == 1


def _choice(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Of which record, and of which kernel at which key."""
    return (*key_of(row), row["round"], *(row[name] for name in CHOICE))


def _named(choice: Tuning) -> Row:
    return {"kernel": choice.kernel, "key": json.dumps(choice.key), "source": choice.source}
