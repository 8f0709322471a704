"""Copies by kind, against the link."""

from __future__ import annotations

import pandas as pd
import pytest

from inferprof.tables.copies import against_link
from inferprof.tables.records import KEY

BANDWIDTH = {
    "h2d": {"pageable": {"gb_per_s": 10.0}, "pinned": {"gb_per_s": 50.0}},
    "d2h": {"pageable": {"gb_per_s": 8.0}, "pinned": {"gb_per_s": 40.0}},
    "d2d": {"gb_per_s": 2000.0},
}


def profile(*copies: tuple[str, int, float, float]) -> pd.DataFrame:
    rows = [
        {**dict.fromkeys(KEY, "x"), "tool": "nsys", "level": "memcpy", "name": name, "metric": metric, "instances": n}
        | {"value": value}
        for name, n, size, ns in copies
        for metric, value in (("bytes_total", size), ("duration_total", ns), ("duration_median", 1.0))
    ]
    return pd.DataFrame(rows).astype({"value": "Float64", "instances": "Int64"})


def test_pageable_and_pinned_copies_are_both_held_against_the_pinned_link() -> None:
    frame = profile(
        ("HtoD pageable", 2, 1000.0, 100.0), ("HtoD pinned", 1, 4000.0, 100.0), ("DtoH pinned", 1, 800.0, 40.0)
    )
    table = against_link(frame, BANDWIDTH)
    columns = ["direction", "host_memory", "copies", "bytes", "gb_per_s", "link_share"]
    assert table[columns].to_numpy().tolist() == [
        ["DtoH", "pinned", 1, 800.0, 20.0, 0.5],
        ["HtoD", "pageable", 2, 1000.0, 10.0, 0.2],
        ["HtoD", "pinned", 1, 4000.0, 40.0, 0.8],
    ]


def test_the_ranges_of_a_profile_are_summed() -> None:
    table = against_link(profile(("HtoD pinned", 1, 100.0, 10.0), ("HtoD pinned", 2, 300.0, 30.0)), BANDWIDTH)
    assert table[["copies", "bytes", "duration_ns"]].to_numpy().tolist() == [[3, 400.0, 40.0]]


def test_on_the_device_a_byte_is_read_and_written() -> None:
    table = against_link(profile(("DtoD", 1, 1000.0, 10.0)), BANDWIDTH)
    assert table["link_share"].tolist() == [0.1]
    assert table["host_memory"].isna().all()


@pytest.mark.parametrize("bandwidth", [None, BANDWIDTH])
def test_what_was_not_measured_is_missing(bandwidth: dict[str, object] | None) -> None:
    table = against_link(profile(("PtoP", 1, 1000.0, 10.0)), bandwidth)
    assert table["gb_per_s"].tolist() == [100.0]
    assert table["link_share"].isna().all()


def test_a_profile_without_copies_has_no_rows() -> None:
    assert against_link(profile(("HtoD pinned", 1, 1.0, 1.0)).assign(level="kernel"), BANDWIDTH).empty
