"""The one shape of all joins: what they may say, and the shares that are computed of them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from inferprof.tables.nodes.attribution import COLUMNS, by_owner, conform, shares


def a_join() -> pd.DataFrame:
    """Four groups of launches at two levels."""
    rows = [
        ("gemm", 700, 7, "encoder", "layer", 1.0),
        ("copy", 300, 3, None, "layer", None),
        ("gemm", 700, 7, "MatMul_1", "op", 0.6),
        ("copy", 300, 3, "Transpose_2", "op", 0.9),
    ]
    return conform(pd.DataFrame(rows, columns=list(COLUMNS)))


def test_shares_of_each_level_add_up_to_its_kernel_time() -> None:
    table = shares(a_join())
    assert list(table.loc["layer"]) == [1000, 700, 300, 0.7, 0.3]
    assert list(table.loc["op"]) == [1000, 1000, 0, 1.0, 0.0]


def test_an_owner_below_the_confidence_asked_for_is_unattributed() -> None:
    assert list(shares(a_join(), at_least=0.8).loc["op"]) == [1000, 300, 700, 0.3, 0.7]


def test_owners_are_listed_with_what_none_of_them_owns() -> None:
    table = by_owner(a_join(), "op", at_least=0.8)
    assert table["owner"].isna().to_list() == [True, False]
    assert table[["duration_ns", "instances", "share"]].to_numpy().tolist() == [[700, 7, 0.7], [300, 3, 0.3]]


def test_launches_of_no_time_have_no_share() -> None:
    frame = a_join().assign(duration_ns=0)
    assert shares(frame)["attributed_share"].isna().all()


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("owner_level", "kernel", "unknown owner levels {'kernel'}"),
        ("confidence", 1.5, "between 0 and 1"),
        ("owner", None, "an owner without a confidence"),
    ],
)
def test_a_join_that_contradicts_itself_is_a_bug(column: str, value: Any, said: str) -> None:
    frame = a_join().head(1).assign(**{column: value})
    with pytest.raises(ValueError, match=said):
        conform(frame)


def test_further_columns_of_a_join_stay_behind_the_common_ones() -> None:
    frame = conform(a_join()[list(COLUMNS)[::-1]].assign(why="range"))
    assert list(frame) == [*COLUMNS, "why"]
