"""Copies by kind, against the link."""

from __future__ import annotations

import pandas as pd
import pytest
from tests.unit.made_records import made

from inferprof.documents import Bandwidth
from inferprof.documents.machine import Curve, Link
from inferprof.tables.limits.copies import against_link, floors
from inferprof.tables.records import KEY, RECORD_KEY, traffic

BANDWIDTH = Bandwidth(
    method="made up",
    h2d=Link(pageable=Curve(10.0, 9000.0, {}), pinned=Curve(50.0, 2000.0, {})),
    d2h=Link(pageable=Curve(8.0, 9000.0, {}), pinned=Curve(40.0, 1000.0, {})),
    d2d=Curve(2000.0, 1000.0, {}),
)


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


def test_the_bytes_of_copies_are_missing_where_the_tool_left_out_some() -> None:
    frame = profile(("HtoD pinned", 2, 100.0, 10.0), ("HtoD pinned", 1, 1.0, 5.0), ("DtoH pinned", 1, 80.0, 2.0))
    table = against_link(frame[~((frame["instances"] == 1) & (frame["value"] == 1.0))], BANDWIDTH)
    assert table[["copies", "duration_ns"]].to_numpy().tolist() == [[1, 2.0], [3, 15.0]]
    assert table["bytes"].isna().tolist() == table["link_share"].isna().tolist() == [False, True]


def test_on_the_device_a_byte_is_read_and_written() -> None:
    table = against_link(profile(("DtoD", 1, 1000.0, 10.0)), BANDWIDTH)
    assert table["link_share"].tolist() == [0.1]
    assert table["host_memory"].isna().all()


@pytest.mark.parametrize("bandwidth", [None, BANDWIDTH])
def test_what_was_not_measured_is_missing(bandwidth: Bandwidth | None) -> None:
    table = against_link(profile(("PtoP", 1, 1000.0, 10.0)), bandwidth)
    assert table["gb_per_s"].tolist() == [100.0]
    assert table["link_share"].isna().all()


def test_a_profile_without_copies_has_no_rows() -> None:
    assert against_link(profile(("HtoD pinned", 1, 1.0, 1.0)).assign(level="kernel"), BANDWIDTH).empty


def record(case: str, **content: object) -> dict[str, object]:
    return {**dict.fromkeys(RECORD_KEY, "x"), "variant": case, "record": made(content)}


def stages(**h2d_and_d2h: tuple[float | None, float | None]) -> pd.DataFrame:
    rows = [
        {**dict.fromkeys(KEY, "x"), "variant": case, "h2d_ms": h2d, "d2h_ms": d2h}
        for case, (h2d, d2h) in h2d_and_d2h.items()
    ]
    return pd.DataFrame(rows).astype({"h2d_ms": float, "d2h_ms": float})


def test_the_traffic_of_a_record_is_the_bytes_of_its_inputs_and_outputs() -> None:
    inputs = {"ids": {"shape": [8, 128], "dtype": "int64"}, "mask": {"shape": [8, 128], "dtype": "bool"}}
    outputs = {"y": {"shape": [8, 384], "dtype": "float16"}}
    frame = traffic(pd.DataFrame([record("a", inputs=inputs, outputs=outputs), record("b", outputs={})]))
    assert frame[["h2d_bytes", "d2h_bytes"]].to_numpy().tolist() == [[9 * 1024, 6144], [None, None]]


def test_the_floor_of_a_copy_is_the_links_latency_and_its_bytes_by_the_bandwidth() -> None:
    frame = traffic(
        pd.DataFrame(
            [
                record("gpu", inputs={"x": {"shape": [1_000_000], "dtype": "float32"}}),
                record("gpu", outputs={"y": {"shape": [0], "dtype": "float32"}}),
                record("cpu"),
            ]
        )
    )
    table = floors(stages(gpu=(34.5, 0.01), cpu=(None, None)), frame, BANDWIDTH)
    assert table["variant"].tolist() == ["gpu"]
    row = table.iloc[0]
    assert row["h2d_ms"] == 34.5
    assert row["h2d_floor_ms"] == (2000 + 4e6 / 50) / 1e6
    assert row["d2h_floor_ms"] == 0.001


@pytest.mark.parametrize("bandwidth", [None, BANDWIDTH])
def test_without_a_bandwidth_or_a_size_there_is_no_floor(bandwidth: Bandwidth | None) -> None:
    content = {"inputs": {"x": {"shape": [4], "dtype": "int8"}}} if bandwidth is None else {}
    table = floors(stages(gpu=(1.0, None)), traffic(pd.DataFrame([record("gpu", **content)])), bandwidth)
    assert table["h2d_ms"].tolist() == [1.0]
    assert table[["h2d_floor_ms", "d2h_floor_ms"]].isna().all(axis=None)
