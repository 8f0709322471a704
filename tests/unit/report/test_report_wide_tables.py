"""Tables that are wider than the text: numbers and names stay whole, at any width."""

from __future__ import annotations

import re

import pytest

from inferprof.report import grid
from inferprof.report.model import Column, Table, missing, number, words
from inferprof.report.sections import gpu_floors

NAMES = ("myblock", "b1_seq32", "fp32")
TEXTS = [f"0.000{digit}665" for digit in range(1, 9)]


def wide() -> Table:
    """Three names, eight numbers of nine characters and one that is missing, in each of two rows."""
    titles = ("model", "shape", "format")
    columns = [*map(Column, titles, titles), *(Column(f"c{text}", "RTX PRO 6000", "number") for text in TEXTS)]
    row = [*map(words, NAMES), *(number(float(text), text) for text in TEXTS), missing("no peak")]
    return Table("wide", "", (*columns, Column("last", "T4", "number")), (tuple(row), tuple(row)), groups=1)


@pytest.mark.parametrize("width", [80, 100])
def test_a_table_that_is_too_wide_goes_on_below_with_the_names_of_its_rows(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(grid, "WIDTH", width)
    text = grid.body(wide())
    assert max(map(len, text.splitlines())) <= width
    shown = text.split()
    assert [shown.count(text) for text in TEXTS] == [2] * len(TEXTS)
    assert shown.count(NAMES[0]) == 2 and text.count("seq32") == 4
    assert len(re.findall(r"–\[1\]", text)) == 2


def test_a_table_that_fits_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "WIDTH", 200)
    assert grid.body(wide()).split().count("model") == 1


@pytest.mark.parametrize(("least", "unit"), [(41.0, "µs"), (9e3, "µs"), (2e4, "ms")])
def test_the_least_times_have_a_unit_in_which_they_have_few_zeros(least: float, unit: str) -> None:
    ns_per_unit, name = gpu_floors._unit([least, 3e6])
    assert name == unit and least / ns_per_unit > 0.01
