"""Exports of nsys that are cut short, damaged or incomplete are refused in one line."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.conftest import Export
from tests.unit.cuts import accepted
from tests.unit.facts import naming

from inferprof.errors import UserError
from inferprof.profilers import nsys
from inferprof.readers.kind import waits
from inferprof.readers.kinds.nsys_sqlite import NSYS_SQLITE
from inferprof.readers.nsys_sqlite import read_timeline


def some_export(made: Export) -> Path:
    made.range("iteration", 1000, 9000)
    for i in range(100):
        made.kernel(
            f"kernel_{i}(float *)", 1500 + i, 1501 + i, made.call("cudaLaunchKernel_v7000", 1100 + i, 1101 + i)
        )
    made.copy(6000, 7000, made.call("cudaMemcpyAsync_v3020", 5000, 6500), kind=1, source=0, target=2, size=2000)
    return made.done()


def test_an_export_is_refused_at_every_cut(export: Callable[..., Export], tmp_path: Path) -> None:
    content = some_export(export()).read_bytes()
    pages = range(0, len(content), 4096)
    anywhere = (*range(0, 4096, 311), *(page + step for page in pages for step in (0, 1, 4095)))
    kept = [place for place in anywhere if place < len(content)]
    assert len(kept) > 40
    assert list(accepted(content, "cut.sqlite", nsys.read, tmp_path, kept)) == []


def test_an_export_whose_header_says_no_size_is_refused_at_every_page(
    export: Callable[..., Export], tmp_path: Path
) -> None:
    content = bytearray(some_export(export()).read_bytes())
    content[92:96] = b"\0\0\0\0"
    assert list(accepted(bytes(content), "cut.sqlite", nsys.read, tmp_path, range(4096, len(content), 4096))) == []


@pytest.mark.parametrize(
    ("table", "column"),
    [
        *(("CUPTI_ACTIVITY_KIND_KERNEL", name) for name in ("start", "deviceId", "streamId", "correlationId")),
        *(("CUPTI_ACTIVITY_KIND_RUNTIME", name) for name in ("end", "globalTid", "nameId")),
        *(("NVTX_EVENTS", name) for name in ("text", "eventType")),
        ("StringIds", "value"),
    ],
)
def test_a_column_that_is_missing_is_named(table: str, column: str, export: Callable[..., Export]) -> None:
    path = some_export(export())
    with sqlite3.connect(path) as database:
        database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    database.close()
    with pytest.raises(UserError, match=naming("made.sqlite is damaged", str(column), "export it again")) as caught:
        nsys.read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon'",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = x'ffff'",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 1e300",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1",
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET end = start - 1",
        "UPDATE NVTX_EVENTS SET end = start - 1",
        "UPDATE NVTX_EVENTS SET start = 'soon'",
        "UPDATE META_DATA_EXPORT SET value = 'newest'",
        "DROP TABLE StringIds",
    ],
)
def test_what_no_tool_wrote_is_refused_in_one_line(change: str, export: Callable[..., Export]) -> None:
    path = some_export(export())
    with sqlite3.connect(path) as database:
        database.execute(change)
    database.close()
    with pytest.raises(UserError) as caught:
        nsys.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_was_still_running_is_left_out_and_what_is_there_twice_counts_once(
    export: Callable[..., Export],
) -> None:
    made = export()
    call = made.call("cudaLaunchKernel_v7000", 10, 20)
    for _ in range(2):
        made.kernel("k", 30, 40, call)
    made.kernel("k", 50, 0, call)
    frame = nsys.read(made.done())
    kernels = frame[frame["level"].isin(["kernel", "launch_config"]) & frame["metric"].eq("duration_total")]
    assert kernels[["instances", "value"]].to_numpy().tolist() == [[1, 10.0], [1, 10.0]]


def test_bytes_that_flipped_are_read_or_refused_in_one_line(export: Callable[..., Export], tmp_path: Path) -> None:
    content = some_export(export()).read_bytes()
    choose = random.Random(0)
    path = tmp_path / "flipped.sqlite"
    refused = 0
    for _ in range(40):
        flipped = bytearray(content)
        for _ in range(choose.choice((1, 20, 500))):
            flipped[choose.randrange(len(content))] = choose.randrange(256)
        path.write_bytes(flipped)
        try:
            nsys.read(path)
        except UserError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 10


def test_a_name_in_another_encoding_is_read(export: Callable[..., Export]) -> None:
    made = export()
    made.kernel("k", 30, 40, made.call("cudaLaunchKernel_v7000", 10, 20))
    made.database.execute("UPDATE StringIds SET value = CAST(x'6bff' AS TEXT) WHERE value = 'k'")
    frame = nsys.read(made.done())
    assert set(frame.loc[frame["level"] == "kernel", "name"]) == {"k\ufffd"}


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"])
def test_an_event_without_a_start_does_not_start_at_0(table: str, export: Callable[..., Export]) -> None:
    path = changed(some_export(export()), f"UPDATE {table} SET start = NULL WHERE rowid = 1")
    with pytest.raises(UserError, match=naming(table, "when")):
        nsys.read(path)


@pytest.mark.parametrize(("table", "column"), [("KERNEL", "globalPid"), ("RUNTIME", "globalTid")])
def test_an_event_of_no_process_is_not_anothers(table: str, column: str, export: Callable[..., Export]) -> None:
    table = f"CUPTI_ACTIVITY_KIND_{table}"
    path = changed(some_export(export()), f"UPDATE {table} SET {column} = NULL WHERE rowid = 1")
    with pytest.raises(UserError, match=naming(table, "process")):
        nsys.read(path)


def test_kernels_that_no_call_launched_are_said_to_be_of_no_iteration(export: Callable[..., Export]) -> None:
    path = changed(
        some_export(export()),
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = NULL, end = end + 100 WHERE rowid <= 30",
    )
    lacks = [lack.what for lack in NSYS_SQLITE.read(path).lacks]  # type: ignore[misc]
    assert any("iteration 30 of 101 operations" in what for what in lacks)


def test_kernels_in_a_view_are_not_left_out(export: Callable[..., Export]) -> None:
    kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
    path = changed(
        some_export(export()),
        f"ALTER TABLE {kernels} RENAME TO others",
        f"CREATE VIEW {kernels} AS SELECT * FROM others",
    )
    with pytest.raises(UserError, match=naming(kernels, "view")):
        nsys.read(path)


@pytest.mark.parametrize("name", ["EXPORT_SCHEMA_VERSION", "EXPORT_PRODUCT_VERSION"])
@pytest.mark.parametrize("value", ["NULL", "3"])
def test_a_version_may_be_anything(name: str, value: str, export: Callable[..., Export]) -> None:
    path = changed(
        some_export(export()),
        "DELETE FROM META_DATA_EXPORT",
        f"INSERT INTO META_DATA_EXPORT VALUES ('{name}', {value})",
    )
    assert "up to" not in NSYS_SQLITE.read(path).ran[0]  # type: ignore[misc]


def changed(path: Path, *statements: str) -> Path:
    with sqlite3.connect(path) as database:
        for statement in statements:
            database.execute(statement)
    database.close()
    return path


def test_operations_whose_end_was_lost_are_said_and_the_last_one_was_running(export: Callable[..., Export]) -> None:
    built = export()
    for number, end in enumerate((2000, 0, 4000, None)):
        start = 1000 * (number + 1)
        built.kernel("k", start, end, built.call("cudaLaunchKernel", start - 500, start - 400))  # type: ignore[arg-type]
    timeline = read_timeline(built.done())
    assert (len(timeline.ops), timeline.endless) == (2, 1)
    lacks = [lack.what for lack in waits(timeline, "nsys profile") if "1 operation took" in lack.what]
    assert len(lacks) == 1


def test_names_that_are_stored_as_bytes_are_read(export: Callable[..., Export]) -> None:
    built = export()
    built.range("infer", 500, 3000)
    built.kernel("gemm", 1000, 2000, built.call("cudaLaunchKernel_v7000", 600, 700))
    for table, column in (("StringIds", "value"), ("NVTX_EVENTS", "text"), ("META_DATA_EXPORT", "value")):
        built.database.execute(f"UPDATE {table} SET {column} = CAST({column} AS BLOB)")
    timeline = read_timeline(built.done())
    assert {"gemm", "cudaLaunchKernel"} <= set(timeline.names)
    assert timeline.paths == ["", "infer"]
