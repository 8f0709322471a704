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

    @functools.cached_property
    def boundaries(self) -> pd.DataFrame:
        """tables.records.boundaries."""
        return records.boundaries(self.ok)

    @functools.cached_property
    def latency(self) -> pd.DataFrame:
        """tables.summary.latency."""
        return summary.latency(self.boundaries)

    @functools.cached_property
    def throughput(self) -> pd.DataFrame:
        """tables.records.throughput."""
        return records.throughput(self.ok)

    @functools.cached_property
    def resources(self) -> pd.DataFrame:
        """tables.records.resources."""
        return records.resources(self.ok)

    @functools.cached_property
    def measured(self) -> pd.DataFrame:
        """tables.join.measured."""
        return join.measured(self.outcomes, self.latency, self.throughput)

    @functools.cached_property
    def stage_samples(self) -> pd.DataFrame:
        """tables.records.stages."""
        return records.stages(self.ok)

    @functools.cached_property
    def stages(self) -> pd.DataFrame:
        """The medians of stage_samples."""
        return join.stage_medians(self.stage_samples)

    @functools.cached_property
    def traffic(self) -> pd.DataFrame:
        """tables.records.traffic."""
        return records.traffic(self.ok)

    @functools.cached_property
    def trials(self) -> pd.DataFrame:
        """tables.tuning.trials."""
        return tuning.trials(self.ok)

    def paired_without(self, option: str) -> Mapping[Key, Sequence[Key]]:
        """tables.records.paired_without."""
        return records.paired_without(option, records.options_of(self.ok))
