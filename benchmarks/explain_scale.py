"""Repeats a real nsys export until it has so many bytes, and says what `inferprof explain` of it takes.

    python benchmarks/explain_scale.py [EXPORT ...] [--megabytes 600] [--folder /tmp]

Every table of events grows as it does in a longer capture: each repetition is later and has correlations of its own.
Without arguments it takes two of tests/data/nsys, of ONNX Runtime and of torch, as nsys wrote them. Exit code 1 where
one takes 10 s of CPU time or 1.5 GiB or more.
"""

from __future__ import annotations

import argparse
import lzma
import sqlite3
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from own_process import run_command

CAPTURES: Final = Path(__file__).parents[1] / "tests/data/nsys"
TAKEN: Final = ("h100_ort_cuda_vit.sqlite.xz", "h100_torch_eager.sqlite.xz")
CPU_S: Final = 10.0
MEMORY_BYTES: Final = 3 << 29
TIMES: Final = ("start", "end", "timestamp", "rawTimestamp")
COUNTED: Final = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME")


def repeat(export: Path, out: Path, size: float) -> list[int]:
    """Write the export so often, one after the other, that it has so many bytes; how many rows COUNTED has then."""
    content = export.read_bytes()
    out.write_bytes(lzma.decompress(content) if export.suffix == ".xz" else content)
    times = max(2, round(size / out.stat().st_size))
    with sqlite3.connect(out) as database:
        database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -200000;")
        every = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {table: [row[1] for row in database.execute(f"PRAGMA table_info({table})")] for table in every}
        events = [table for table in every if "start" in columns[table] and not table.startswith("TARGET_")]
        stacks = [table for table in every if table.endswith("_CALLCHAINS")]
        length = 1_000_000 + _most(database, columns, events, "end") - _least(database, events)
        correlations = 1 + _most(database, columns, events, "correlationId")
        chains = 1 + _most(database, columns, stacks, "id")
        for table in [*events, *stacks]:
            database.execute(f"CREATE TEMP TABLE first AS SELECT * FROM {table}")
            steps = {**dict.fromkeys(TIMES, length), "correlationId": correlations}
            steps |= {"id": chains} if table in stacks else {}
            later = [_later(column, steps) for column in columns[table]]
            for number in range(1, times):
                database.execute(
                    f"INSERT INTO {table} SELECT {', '.join(later)} FROM first".replace("?", str(number))
                )
            database.execute("DROP TABLE first")
        database.commit()
        return [database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in COUNTED]


def _most(database: sqlite3.Connection, columns: dict[str, list[str]], events: list[str], column: str) -> int:
    having = [table for table in events if column in columns[table]]
    largest = (database.execute(f'SELECT MAX("{column}") FROM {table}').fetchone()[0] for table in having)
    return max((number for number in largest if number is not None), default=0)


def _least(database: sqlite3.Connection, events: list[str]) -> int:
    starts = (database.execute(f"SELECT MIN(start) FROM {table}").fetchone()[0] for table in events)
    return min(start for start in starts if start is not None)


def _later(column: str, steps: Mapping[str, int]) -> str:
    return f'"{column}" + ? * {steps[column]}' if column in steps else f'"{column}"'


def main() -> int:
    """Explain each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "exports", nargs="*", type=Path, default=[CAPTURES / name for name in TAKEN], metavar="EXPORT"
    )
    parser.add_argument("--megabytes", type=float, default=600.0)
    parser.add_argument("--folder", type=Path, help="where the exports are written")
    arguments = parser.parse_args()
    within = True
    for export in arguments.exports:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            out = Path(folder) / export.name.removesuffix(".xz")
            kernels, calls = repeat(export, out, arguments.megabytes * 1e6)
            took = run_command([sys.executable, "-m", "inferprof", "explain", str(out)], Path(folder))
            size = out.stat().st_size / 1e6
        print(f"{size:,.0f} MB, {kernels:,} kernels, {calls:,} calls: {took}", flush=True)
        within &= took.cpu < CPU_S and took.peak < MEMORY_BYTES
    print("within the limits" if within else f"over a limit: {CPU_S:.0f} s of CPU time, {MEMORY_BYTES} bytes")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
