"""SQLite exports of Nsight Systems."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from inferprof import processes
from inferprof.errors import UserError, in_one_line
from inferprof.readers.kind import Capture, Head, Kind, Lack, waits

_GPU_TABLES: Final = ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU")
_VERSION_TABLES: Final = ("META_DATA_EXPORT", "EXPORT_META_DATA")


def recognises(head: Head) -> bool:
    """Whether it is an export. Raises UserError for any other database."""
    if not head.raw.startswith(b"SQLite format 3\0"):
        return False
    path = head.path
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            tables = _tables(database)
            string_columns = {row[1] for row in database.execute("PRAGMA table_info(StringTable)")}
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} is a damaged SQLite file ({in_one_line(error)}): export it again with `nsys export`"
        ) from None
    if string_columns or "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL" in tables:
        raise UserError(f"{path} is an nvprof database: profile again with nsys and read its .sqlite export")
    if "StringIds" not in tables:
        raise UserError(
            f"{path} is a SQLite file but no Nsight Systems export: make one with `nsys export --type sqlite`"
        )
    return True


def _tables(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def read(path: Path) -> Capture:
    """The timeline, and the GPUs and programs that it is of. Raises UserError where nothing of a GPU is in it."""
    from inferprof.readers import nsys_sqlite, sqlite_file

    timeline = nsys_sqlite.read_timeline(path)
    own = timeline.ops["process"].unique().tolist()
    with sqlite_file.database_of(path) as database:
        devices = sorted(timeline.ops["device"].unique().tolist())
        ran, major = _ran(database, own, devices), _compute_major(database, devices)
    lacks = [
        *waits(
            timeline, "nsys profile --trace=cuda,nvtx …, with all of its events (`nsys stats` warns of lost ones)"
        ),
        Lack("what the kernels' units do", "ncu --set full … on the longest kernels", "counters"),
    ]
    settings = {"version": ran[0]}
    return Capture("nsys", ran, timeline=timeline, lacks=lacks, settings=settings, compute_major=major)


def _compute_major(database: sqlite3.Connection, devices: Iterable[int]) -> int | None:
    """The least major number of the compute capabilities of these GPUs, as far as the export tells."""
    columns = {row[1] for row in database.execute("PRAGMA table_info(TARGET_INFO_GPU)")}
    if not {"cuDevice", "computeMajor"} <= columns:
        return None
    gpus = database.execute("SELECT cuDevice, computeMajor FROM TARGET_INFO_GPU")
    return min((major for number, major in gpus if number in set(devices) and isinstance(major, int)), default=None)


def _ran(database: sqlite3.Connection, processes: Iterable[int], devices: Iterable[int]) -> list[str]:
    """Version, GPUs in use and programs, as far as the export names them."""
    from inferprof.readers import sqlite_file

    tables = _tables(database)
    versions = [
        sqlite_file.text_of(row[0]).removesuffix(".0")
        for table in _VERSION_TABLES
        if table in tables
        for row in database.execute(f"SELECT value FROM {table} WHERE name = 'EXPORT_PRODUCT_VERSION'")
        if row[0]
    ]
    table = next((name for name in _GPU_TABLES if name in tables), None)
    columns = {row[1] for row in database.execute(f"PRAGMA table_info({table})")} if table else set()
    by_number = "cuDevice" if "cuDevice" in columns else "NULL"
    gpus = list(database.execute(f"SELECT {by_number}, name FROM {table}")) if table else []
    names = dict.fromkeys(name for number, name in gpus if number is None or number in set(devices))
    programs = (
        [
            name
            for process in processes
            for (name,) in database.execute(
                "SELECT name FROM PROCESSES WHERE (globalPid >> 24) & 0xFFFFFF = ? LIMIT 1", (process,)
            )
        ]
        if "PROCESSES" in tables
        and "globalPid" in {row[1] for row in database.execute("PRAGMA table_info(PROCESSES)")}
        else []
    )
    older = "" if tables.intersection(_VERSION_TABLES) else " up to 2021.4"
    tool = f"Nsight Systems {versions[0]}" if versions else f"Nsight Systems{older}"
    return [
        tool,
        *(sqlite_file.text_of(name) for name in names if name),
        *dict.fromkeys(Path(sqlite_file.text_of(name)).name for name in programs if name),
    ]


NSYS_SQLITE: Final = Kind(
    name="nsys_sqlite",
    title="an Nsight Systems file",
    recognises=recognises,
    read=read,
    tool="nsys",
    rank=1,
)


REFUSAL: Final = "is a binary Nsight Systems report: run `nsys export --type sqlite` on it and read the .sqlite"


def export(path: Path, folder: Path) -> Path:
    """The report as SQLite, in a folder. Raises UserError where there is no nsys, or it cannot read this report."""
    nsys = shutil.which("nsys")
    if nsys is None:
        raise UserError(f"{path} {REFUSAL} (nsys is not on PATH here)")
    out = folder / f"{path.stem}.sqlite"
    done = processes.run_merged(
        [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={out}", str(path)]
    )
    if done.returncode != 0 or not out.exists():
        last = next((line for line in reversed(done.stdout.splitlines()) if line.strip()), "it says nothing")
        raise UserError(
            f"{path} could not be exported by {nsys} ({last.strip()}): use the nsys that wrote it, or newer"
        )
    return out


NSYS_REPORT: Final = Kind(
    name="nsys_report",
    title="a binary Nsight Systems report",
    recognises=lambda head: head.raw.startswith(b"NVIDIA Tegra Profiler Report"),
    refusal=REFUSAL,
    convert=export,
    rank=0,
)
