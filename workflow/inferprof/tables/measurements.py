"""What the records of some cases say: derived once, for the diagnosis of a model and for the report of a study."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inferprof.once import Derives
from inferprof.tables import join, records, summary, tuning
from inferprof.tables.records import Key

if TYPE_CHECKING:
    import pandas as pd


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

    boundaries = functools.cached_property(lambda self: records.boundaries(self.ok))
    latency = functools.cached_property(lambda self: summary.latency(self.boundaries))
    throughput = functools.cached_property(lambda self: records.throughput(self.ok))
    resources = functools.cached_property(lambda self: records.resources(self.ok))
    measured = functools.cached_property(lambda self: join.measured(self.outcomes, self.latency, self.throughput))
    stage_samples = functools.cached_property(lambda self: records.stages(self.ok))
    stages = functools.cached_property(lambda self: join.stage_medians(self.stage_samples))
    traffic = functools.cached_property(lambda self: records.traffic(self.ok))
    trials = functools.cached_property(lambda self: tuning.trials(self.ok))

    def paired_without(self, option: str) -> Mapping[Key, Sequence[Key]]:
        """tables.records.paired_without."""
        return records.paired_without(option, records.options_of(self.ok))
