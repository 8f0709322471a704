"""NVIDIA's rules beside our verdicts on the same launch: where both look at one thing, and where they disagree.

Theirs counts from RULE_PERCENT of the kernel's time on (rule_speed_up_kernel, an estimate of the tool); a gain in one
unit's efficiency is not the kernel's. Ours is counters.kernel_faults. A rule that no verdict of ours sees (why
warps stall, compression in the L2, how full a pipe is) disagrees with none.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import pandas as pd

from inferprof.tables.counters.kernel_faults import FaultName, of_launches
from inferprof.tables.records import frame_of, rows_of

RULE_PERCENT: Final = 5.0
"""Ours: less than this of one kernel is within what replaying it alone changes."""
RULES: Final[Mapping[str, tuple[FaultName, ...]]] = {
    "SharedMemoryConflicts": ("bank_conflicts",),
    "UncoalescedSharedAccess": ("bank_conflicts",),
    "UncoalescedGlobalAccess": ("uncoalesced",),
    "MemoryCacheAccessPattern": ("uncoalesced", "l2_misses"),
    "ThreadDivergence": ("divergence",),
    "LaunchConfiguration": ("tail", "small_grid"),
    "WorkloadImbalance": ("tail", "small_grid"),
    "AchievedOccupancy": ("low_occupancy",),
    "TheoreticalOccupancy": ("low_occupancy",),
}
"""Rule → the faults of ours that look at the same."""
Agreement = Literal["agree", "theirs alone", "ours alone", "ours not assessed", "no such check of ours"]
COLUMNS: Final = ("launch", "name", "rule", "rule_percent", "faults", "ours", "agreement", "message")
_NUMBER: Final = re.compile(r" \d+$")
"""Behind the name of a rule that spoke several times: readers.ncu_launches."""


def agreement(counters: pd.DataFrame) -> pd.DataFrame:
    """One row per launch and rule that expects RULE_PERCENT, or fault of ours that no rule mentions, by launch.

    counters: one case's rows by ncu. `rule_percent`: of the kernel's time, the largest of a rule's results; missing
    where no rule speaks. `faults`: ours that it looks at; `ours`: their verdicts and reasons. No rows where the
    capture has no rules.
    """
    rules = _rules(counters)
    if rules.empty:
        return frame_of([], list(COLUMNS))
    judged: dict[int, dict[str, dict[str, Any]]] = {}
    for row in rows_of(of_launches(counters)):
        judged.setdefault(row["launch"], {})[row["fault"]] = row
    rows = [_theirs(row, judged.get(row["launch"], {})) for row in rows_of(rules)]
    spoken = {(row["launch"], fault) for row in rows for fault in row["faults"].split(", ")}
    looked_at = set(itertools.chain.from_iterable(RULES.values()))
    rows += [
        _ours_alone(finding)
        for faults in judged.values()
        for fault, finding in faults.items()
        if finding["verdict"] == "found" and (finding["launch"], fault) not in spoken and fault in looked_at
    ]
    rows.sort(key=lambda row: (row["launch"], -(row["rule_percent"] or 0.0)))
    return frame_of(rows, list(COLUMNS))


def _rules(counters: pd.DataFrame) -> pd.DataFrame:
    """launch, kernel, rule, rule_percent, message: each rule's largest gain of a launch."""
    rows = counters[counters["level"] == "ncu_rule"]
    gains = rows[(rows["metric"] == "rule_speed_up_kernel") & (rows["value"] >= RULE_PERCENT)]
    said = rows.loc[rows["metric"] == "rule_message", ["launch", "name", "text"]].rename(columns={"text": "message"})
    table = gains[["launch", "name", "owner", "value"]].merge(said, on=["launch", "name"], how="left")
    table = table.assign(rule=table["name"].str.replace(_NUMBER, "", regex=True)).sort_values(
        "value", ascending=False, kind="stable"
    )
    table = table.drop_duplicates(["launch", "rule"]).drop(columns="name")
    return table.rename(columns={"owner": "name", "value": "rule_percent"})


def _theirs(row: Mapping[str, Any], judged: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    faults = RULES.get(row["rule"], ())
    ours = [judged[fault] for fault in faults if fault in judged]
    verdicts = {finding["verdict"] for finding in ours}
    outcome: Agreement = "theirs alone" if "clear" in verdicts else "ours not assessed"
    outcome = "agree" if "found" in verdicts else outcome if ours else "no such check of ours"
    words = "; ".join(f"{finding['fault']} {finding['verdict']}: {finding['reason']}" for finding in ours)
    return {**row, "faults": ", ".join(faults), "ours": words, "agreement": outcome}


def _ours_alone(finding: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "launch": finding["launch"],
        "name": finding["name"],
        "rule": None,
        "rule_percent": None,
        "faults": finding["fault"],
        "ours": f"{finding['fault']} found: {finding['reason']}",
        "agreement": "ours alone",
        "message": None,
    }
