"""NVIDIA's rules beside our verdicts on launches of an H100."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from tests.unit.facts import facts

from inferprof.profilers import ncu
from inferprof.tables.counters import ncu_rules


@pytest.fixture(scope="module")
def counters(repository: Path) -> pd.DataFrame:
    return ncu.read(repository / "tests/data/ncu/h100_ort_cuda_vit_details.csv.gz")


@pytest.fixture(scope="module")
def table(counters: pd.DataFrame) -> pd.DataFrame:
    return ncu_rules.agreement(counters)


def test_both_see_the_tail_of_an_elementwise_kernel(table: pd.DataFrame) -> None:
    row = table[(table["launch"] == 0) & (table["rule"] == "LaunchConfiguration")].iloc[0]
    assert (row["rule_percent"], row["agreement"]) == (50.0, "agree")
    assert facts(row["ours"], "tail", "found")[:5] == ["tail", "found", "1.12", "44 %", "SMs"]


def test_a_rule_that_speaks_several_times_counts_once_by_its_largest(table: pd.DataFrame) -> None:
    assert not table["rule"].dropna().str.contains(r" \d").any()
    assert not table.duplicated(["launch", "rule", "faults"]).any()


def test_what_a_rule_expects_less_than_five_percent_of_is_left_out(table: pd.DataFrame) -> None:
    assert table["rule_percent"].dropna().min() >= ncu_rules.RULE_PERCENT
    assert "FPInstructions" not in set(table["rule"])


def test_a_rule_about_stalls_has_no_check_of_ours(table: pd.DataFrame) -> None:
    stalls = table[table["rule"] == "CPIStall"]
    assert [facts(text, "ours") for text in set(stalls["agreement"])] == [["no", "ours"]]


def test_a_verdict_that_a_page_cannot_give_does_not_disagree(table: pd.DataFrame) -> None:
    rows = table[table["rule"] == "UncoalescedGlobalAccess"]
    assert list(rows["agreement"]) == ["ours not assessed", "ours not assessed"]


def test_a_fault_that_no_rule_mentions_is_ours_alone(counters: pd.DataFrame) -> None:
    silent = counters[~counters["name"].fillna("").str.startswith(("LaunchConfiguration", "WorkloadImbalance"))]
    found = ncu_rules.agreement(silent)
    alone = found[found["agreement"] == "ours alone"]
    assert set(alone["faults"]) == {"tail"}
    assert alone["rule"].isna().all()


def test_a_capture_without_rules_has_no_rows(repository: Path) -> None:
    raw = ncu.read(repository / "tests/data/ncu/h100_ort_cuda_vit_raw.csv.gz")
    assert ncu_rules.agreement(raw).empty
