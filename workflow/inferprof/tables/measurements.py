"""What the records of some cases say: derived once, for the diagnosis of a model and for the report of a study."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from inferprof.once import Derives
from inferprof.tables import gate, join, records, summary, tuning
from inferprof.tables.records import Key


@dataclass(frozen=True, eq=False)
class Measurements(Derives):
    """The cases that were planned or have a record. All but `records` is of those that are ok in every round."""

    outcomes: pd.DataFrame
    """tables.join.outcomes."""
    records: pd.DataFrame
    """tables.records.read."""

    @functools.cached_property
    def ok(self) -> pd.DataFrame:
        """The records of the cases that are ok in every round: a failed case has no latency."""
        keys = self.outcomes.loc[self.outcomes["outcome"] == "ok", records.KEY]
        return self.records.merge(keys, on=records.KEY, validate="many_to_one")

    boundaries = functools.cached_property(lambda self: gate.enough(records.boundaries(self.ok)))
    hosts = functools.cached_property(lambda self: summary.hosts(records.hosts(self.ok)))
    latency = functools.cached_property(
        lambda self: summary.latency(self.boundaries, summary.waited_of(self.hosts), self.waited_limit)
    )
    doubts = functools.cached_property(lambda self: summary.doubts_of(self.latency))
    throughput = functools.cached_property(lambda self: records.throughput(self.ok))
    resources = functools.cached_property(lambda self: records.resources(self.ok))
    measured = functools.cached_property(lambda self: join.measured(self.outcomes, self.latency, self.throughput))
    stage_samples = functools.cached_property(lambda self: records.stages(self.ok))
    stages = functools.cached_property(lambda self: join.stage_medians(self.stage_samples))
    traffic = functools.cached_property(lambda self: records.traffic(self.ok))
    trials = functools.cached_property(lambda self: tuning.trials(self.ok))

    @property
    def waited_limit(self) -> float:
        """From which share of its time on a thread waits too long for a core."""
        return gate.WAITED

    @functools.cached_property
    def trusted(self) -> pd.DataFrame:
        """The rows of `boundaries` that are in no doubt."""
        places = zip(*(self.boundaries[name] for name in (*records.KEY, "boundary")), strict=True)
        return self.boundaries.loc[[place not in self.doubts for place in places]]

    @functools.cached_property
    def medians(self) -> Mapping[Key, float]:
        """Case → the median of end_to_end, ns."""
        rows = self.latency[self.latency["boundary"].eq("end_to_end") & self.latency["median"].notna()]
        return {records.key_of(row): row["median"] for row in records.rows_of(rows)}

    @functools.cached_property
    def failures(self) -> Mapping[Key, str]:
        """The cases that failed, and why."""
        rows = self.outcomes[self.outcomes["outcome"].isin(("failed", "broken"))]
        return {records.key_of(row): str(row["reason"]) for row in records.rows_of(rows)}

    def paired_without(self, option: str) -> Mapping[Key, Sequence[Key]]:
        """tables.records.paired_without."""
        return records.paired_without(option, records.options_of(self.ok))
