"""What a check is told about a case, and what it answers: Frames in, findings out.

A check (plugins.Check) is found by folder in `diagnosis/`, as is each Threshold there. It answers in one of three
ways: *found*, with findings; *clear*, and why; *not assessed*, and what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from inferprof.case import Case
from inferprof.documents import Bandwidth, Ceilings, Cost, Environment, Links, Partition, Record, Serving
from inferprof.documents.diagnosed import (
    Answer,
    Bottleneck,
    Change,
    Confidence,
    Evidence,
    Finding,
    Gain,
    Level,
    Total,
    Tried,
)
from inferprof.once import Derives

if TYPE_CHECKING:
    import pandas as pd

Need = Literal[
    "gpu", "cpu", "ranks", "record", "timeline", "counters", "environment", "bandwidth", "links", "load", "cache"
]
NEEDS: Final[Mapping[Need, str]] = {
    "gpu": "a case that runs on a GPU",
    "cpu": "a case that runs on the CPU",
    "ranks": "a case over several GPUs",
    "record": "a bare measurement of the case: inferprof run",
    "timeline": "a timeline of the case's iterations: nsys or kineto under `profilers:`",
    "counters": "counters of the case's kernels: nsys and ncu under `profilers:`",
    "environment": "environment.json of the machine: inferprof probe",
    "bandwidth": "bandwidth.json of the machine: inferprof bandwidth",
    "links": "links.json of the machine: inferprof links",
    "load": "a run of the case under load: `serving:` in the config",
    "cache": "a case with a KV cache: `kv_cache: true` in its model's description",
}
"""What a check may need → what is missing where it isn't there, and how to get it."""
ELSEWHERE: Final[tuple[Need, ...]] = ("gpu", "cpu", "ranks", "load", "cache")
"""Needs of checks that are about other cases: on other hardware, which nobody can give them, or under load, which a
study asks for by itself."""
OF_ONNX_RUNTIME: Final = "a case that ONNX Runtime runs"
"""What checks need that ask which of a case's operators take the time."""
OF_OTHERS: Final = frozenset(f"needs {what}" for what in (*(NEEDS[need] for need in ELSEWHERE), OF_ONNX_RUNTIME))
"""Reasons of checks that are about other cases."""
__all__ = [
    "ELSEWHERE",
    "END_TO_END",
    "NEEDS",
    "OF_ONNX_RUNTIME",
    "OF_OTHERS",
    "Answer",
    "Bottleneck",
    "Change",
    "Clear",
    "Confidence",
    "Documents",
    "Evidence",
    "Finding",
    "Frames",
    "Gain",
    "Level",
    "Need",
    "NotAssessed",
    "PairedCase",
    "Threshold",
    "Total",
    "Tried",
]
END_TO_END: Final = "end_to_end"
"""What shares are of, unless the case was not measured without a profiler."""


class NotAssessed(LookupError):
    """What a check needs and does not have: the words behind `needs`."""


@dataclass(frozen=True)
class Threshold:
    """From when on something counts. `source`: who says so, or `ours: ` and the reason."""

    name: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class Clear:
    """Nothing found, and the numbers behind that. gain: what the advice would save all the same."""

    reason: str
    evidence: Mapping[str, float] = field(default_factory=dict)
    gain: Gain | None = None


@dataclass(frozen=True)
class PairedCase:
    """The case that is the same but for one option: that of `quantize`, which it lacks."""

    case: Case
    record: Record
    """Of its first round."""
    profiles: pd.DataFrame
    """The tidy tables of all tools."""


@dataclass(frozen=True)
class Documents:
    """The JSON files about a case's machine and graph; None where one is missing, or its stage failed."""

    environment: Environment | None = None
    bandwidth: Bandwidth | None = None
    ceilings: Ceilings | None = None
    links: Links | None = None
    cost: Cost | None = None
    partition: Partition | None = None
    serving: tuple[Serving, ...] = ()
    """What came of the case under load, by each policy."""


@dataclass(frozen=True, eq=False)
class Frames(Derives):
    """All that is known of one case, as frames of tables/: each has rows of this case alone, apart from `peers`.

    What several checks ask of one is kept with it: Derives.once.
    """

    machine: str
    case: Case
    total: Total | None
    records: pd.DataFrame
    """tables.records.read of a case that is ok in every round, else none."""
    latency: pd.DataFrame
    """tables.summary.latency: a row per boundary."""
    stages: pd.DataFrame
    """tables.join.stage_medians: at most one row."""
    floors: pd.DataFrame
    """tables.limits.copies.floors: at most one row."""
    profiles: pd.DataFrame
    """The tidy tables of all tools."""
    tool: str | None
    """The tracer that speaks for the case, or None: tables.limits.waterfall.traced."""
    timeline: pd.DataFrame
    """That tracer's rows of profiles."""
    overheads: pd.DataFrame
    """tables.overhead.ledger: a row per tool."""
    waterfall: Mapping[str, Any]
    """The row of tables.limits.waterfall.of_cases; `total_ns` is None where there is no waterfall."""
    peers: pd.DataFrame
    """tables.join.measured of all measured cases of the model on the machine, this one among them."""
    trials: pd.DataFrame
    """tables.tuning.trials of the same cases as `peers`: what autotuners tried."""
    documents: Documents
    failure: str | None = None
    """At which stage the case failed, and why; None where it did not."""
    best_counters: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """Autotuned kernel → ncu's rows of another case that runs its fastest known configuration."""
    undivided: Case | None = None
    """Of a case with the option `parallel`: the measured case without it."""
    unquantized: PairedCase | None = None
    """Of a case with the option `quantize`: the measured case without it."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """By name: the config's, instead of those in the code."""
    tries: Mapping[tuple[str, Any], Tried] = field(default_factory=dict)
    """Option and value → what a variant came to that has nothing else on top of the case; see tables.tries."""

    @property
    def record(self) -> Record:
        """The record of the first round; there must be one."""
        record: Record = self.records["record"].iloc[0]
        return record

    def tried(self, options: Mapping[str, Any]) -> Tried | None:
        """What the study says of a variant with these options on top; None where it tried none."""
        return next((self.tries[option] for option in options.items() if option in self.tries), None)

    def lost(self, options: Mapping[str, Any]) -> bool:
        """Whether the study tried these options in vain."""
        tried = self.tried(options)
        return tried is not None and tried.lost

    def limit(self, threshold: Threshold) -> float:
        """A threshold's value: the config's where it has one."""
        return self.thresholds.get(threshold.name, threshold.value)

    def share(self, ns: float | None) -> float | None:
        """So much time as a share of the total, at most 1; None where one of the two is not known."""
        return None if ns is None or self.total is None else min(1.0, ns / self.total.ns)

    def of_tool(self, tool: str) -> pd.DataFrame:
        """The rows of `profiles` that a tool made."""
        return self.profiles[self.profiles["tool"] == tool]
