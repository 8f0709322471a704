"""What a check is told about a case, and what it answers: Frames in, findings out.

A check (plugins.Check) is found by folder in `diagnosis/`, as is each Threshold there. It answers in one of three
ways: *found*, with findings; *clear*, and why; *not assessed*, and what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from inferprof.case import Case
from inferprof.documents import Bandwidth, Ceilings, Cost, Environment, Partition, Record
from inferprof.once import Derives

if TYPE_CHECKING:
    import pandas as pd

Level = Literal["host", "transfer", "device", "engine", "kernel", "environment"]
Verdict = Literal["found", "clear", "not assessed"]
Confidence = Literal["high", "medium", "low"]
"""high: measured on the bare run; medium: by a profile, whose own cost is in it; low: a rule of thumb is in it."""
Bottleneck = Literal[
    "launch", "idle", "copy", "memory", "compute", "latency", "tail", "kernels", "measurement", "capacity", "tuning"
]
"""What a finding eats: the parts of limits.waterfall. Findings of one bottleneck overlap, and the five from `memory`
to `kernels` all share the kernels' time. The others cost no time of this case that is known: `measurement` trust in
the numbers, `capacity` device memory, `tuning` time of the first inference or of other shapes."""
Need = Literal["gpu", "cpu", "record", "timeline", "counters", "environment", "bandwidth"]
NEEDS: Final[Mapping[Need, str]] = {
    "gpu": "a case that runs on a GPU",
    "cpu": "a case that runs on the CPU",
    "record": "a bare measurement of the case: inferprof run",
    "timeline": "a timeline of the case's iterations: nsys or kineto under `profilers:`",
    "counters": "counters of the case's kernels: nsys and ncu under `profilers:`",
    "environment": "environment.json of the machine: inferprof probe",
    "bandwidth": "bandwidth.json of the machine: inferprof bandwidth",
}
"""What a check may need → what is missing where it isn't there, and how to get it."""
ELSEWHERE: Final[tuple[Need, ...]] = ("gpu", "cpu")
"""Needs of checks that are about cases on other hardware: nobody can give a case what they lack."""
OF_OTHERS: Final = frozenset(f"needs {NEEDS[need]}" for need in ELSEWHERE)
"""Reasons of checks that are about cases on other hardware."""
END_TO_END: Final = "end_to_end"
"""What shares are of, unless the case was not measured without a profiler."""
Outcome = Literal["better", "no difference", "backfired", "undecided", "failed", "refused"]
"""What became of a fix that was tried. undecided: one of the two measurements is in doubt, or has no interval."""
LOST: Final[frozenset[Outcome]] = frozenset({"no difference", "backfired", "failed", "refused"})
"""Outcomes of what is not advised again."""


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
class Gain:
    """Bounds of the time that could go from Frames.total if the advice is followed, ns. low 0: perhaps nothing."""

    low_ns: float
    high_ns: float


@dataclass(frozen=True)
class Tried:
    """What a fix came to: the case with it beside the one that lacks nothing else, by end_to_end, ns.

    low_ns and high_ns are the 95 % interval of achieved_ns; all three are None where nothing was measured, which
    `reason` tells.
    """

    variant: str
    outcome: Outcome
    reason: str = ""
    achieved_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    in_doubt: bool = False
    """Whether one of the two measurements is: tables.gate."""

    @property
    def lost(self) -> bool:
        """Whether nobody should try it again."""
        return self.outcome in LOST


@dataclass(frozen=True)
class Finding:
    """One thing that costs a case time, or trust.

    subject: what it is about (a kernel, a call, a kind of copy), or "" for the whole case. share: of Frames.total,
    0 to 1; None where that is not known. reason, advice: short sentences, the first with the numbers. evidence:
    numbers by name, units in the names. source: the file or the tool that they are from. gain: None where no bound
    can be given. acts: whether the advice changes the case, and does not only find out more. options: of a variant
    that tries the advice; tried: what that came to, where the study has one.
    """

    subject: str
    bottleneck: Bottleneck
    share: float | None
    reason: str
    evidence: Mapping[str, float]
    source: str
    gain: Gain | None
    advice: str
    confidence: Confidence
    acts: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    tried: Tried | None = None


@dataclass(frozen=True)
class Clear:
    """Nothing found, and the numbers behind that. gain: what the advice would save all the same."""

    reason: str
    evidence: Mapping[str, float] = field(default_factory=dict)
    gain: Gain | None = None


@dataclass(frozen=True)
class Answer:
    """What a check says of a case. `reason`: why it is clear, or `needs …` where it was not assessed; else empty."""

    check: str
    level: Level
    verdict: Verdict
    reason: str = ""
    evidence: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    gain: Gain | None = None
    """Of a clear answer: Clear.gain."""


@dataclass(frozen=True)
class Total:
    """What shares are of, ns: the bare end_to_end median; where there is none, what `of` says, under a profiler."""

    ns: float
    of: str


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
    cost: Cost | None = None
    partition: Partition | None = None


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
