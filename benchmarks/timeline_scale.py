"""Reads nsys exports of half a million and five million kernels (schema 3.27) and says what that took.

    python benchmarks/timeline_scale.py [--kernels 5000000] [--folder /tmp]

Exit code 1 where the larger one takes 60 s or 2 GiB or more, or more than eleven times the CPU time of the smaller.
Each export is read by `inferprof table` in a process of its own. It has as many API calls as kernels, and per hundred
of them an iteration with a copy, a synchronise and a stage.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
from pathlib import Path

import pandas as pd
from own_process import Took, run_command

SECONDS = 60.0
MEMORY_BYTES = 2 * 1024**3
GROWTH = 11.0
KERNELS_PER_ITERATION = 100
NAMES = 200

_SCHEMA = """
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.27.0');
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER,
    registersPerThread INTEGER NOT NULL, gridX INTEGER, gridY INTEGER, gridZ INTEGER,
    blockX INTEGER, blockY INTEGER, blockZ INTEGER, gridId INTEGER, graphNodeId INTEGER, graphId INTEGER,
    clusterX INTEGER, tensorSizeMinusOneElements INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
    start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL,
    copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE NVTX_EVENTS (
    start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER, textId INTEGER,
    domainId INTEGER);
"""
# One iteration is 1 ms: a copy, a hundred kernels of 3 to 7 us launched every 8 us on two streams, a synchronise.
_ROWS = """
INSERT INTO StringIds WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {names})
    SELECT i, 'void kernel_' || i || '<float>(float *)' FROM n;
INSERT INTO StringIds VALUES (1000, 'cudaLaunchKernel_v7000'), (1001, 'cudaMemcpyAsync_v3020'),
    (1002, 'cudaStreamSynchronize_v3020');
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {kernels})
    SELECT i / 100 * 1000000 + 100000 + i % 100 * 8000 + 4000,
        i / 100 * 1000000 + 100000 + i % 100 * 8000 + 7000 + i * 7919 % 4000, 0, 1, NULL, 7 + i % 2, i + 1, {pid},
        i % {names}, i % {names}, NULL, 0, 32, 128, 1, 1, 256, 1, 1, i, NULL, NULL, 1, NULL FROM n;
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {kernels})
    SELECT i / 100 * 1000000 + 100000 + i % 100 * 8000, i / 100 * 1000000 + 100000 + i % 100 * 8000 + 3000, 0,
        {pid} | 9, i + 1, 1000, 0, NULL FROM n;
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {iterations})
    SELECT i * 1000000 + 20000, i * 1000000 + 80000, 0, 1, 7, {kernels} + 1 + 2 * i, {pid}, 602112, 1, 0, 2 FROM n;
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {iterations})
    SELECT i * 1000000 + 10000, i * 1000000 + 85000, 0, {pid} | 9, {kernels} + 1 + 2 * i, 1001, 0, NULL FROM n;
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {iterations})
    SELECT i * 1000000 + 900000, i * 1000000 + 990000, 0, {pid} | 9, {kernels} + 2 + 2 * i, 1002, 0, NULL FROM n;
INSERT INTO NVTX_EVENTS
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {iterations})
    SELECT i * 1000000, i * 1000000 + 995000, 59, 'iteration', {pid} | 9, NULL, 0 FROM n;
INSERT INTO NVTX_EVENTS
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {iterations})
    SELECT i * 1000000 + 90000, i * 1000000 + 895000, 59, 'stage:execute', {pid} | 9, NULL, 0 FROM n;
"""


def generate(path: Path, kernels: int) -> None:
    """Write an export with this many kernels."""
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = OFF")
        database.executescript(_SCHEMA)
        database.executescript(
            _ROWS.format(
                kernels=kernels, iterations=kernels // KERNELS_PER_ITERATION, names=NAMES, pid=1 << 48 | 4242 << 24
            )
        )
    database.close()


def measure(kernels: int, folder: Path) -> Took:
    """Generate an export and make the tidy table of it."""
    export, table = (folder / f"{kernels}.{suffix}" for suffix in ("sqlite", "parquet"))
    generate(export, kernels)
    took = run_command([sys.executable, "-m", "inferprof", "table", "nsys", str(export), "--out", str(table)], folder)
    size = export.stat().st_size
    export.unlink()
    frame = pd.read_parquet(table)
    rows = frame[(frame["level"] == "kernel") & (frame["metric"] == "duration_total")]
    idle = frame.loc[(frame["name"] == "iteration") & (frame["metric"] == "idle_launch"), "value"].iloc[0]
    print(f"{kernels:>9,} kernels, {size / 1e6:6.0f} MB: {took}, idle_launch {idle:.0f} ns an iteration", flush=True)
    assert rows["instances"].sum() == kernels
    return took


def main() -> int:
    """Measure both sizes and compare with the limits."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernels", type=int, default=5_000_000)
    parser.add_argument("--folder", type=Path, help="where the exports are written (1 GB)")
    arguments = parser.parse_args()
    if arguments.folder:
        arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        small = measure(arguments.kernels // 10, Path(folder))
        large = measure(arguments.kernels, Path(folder))
    # CPU time, so that neighbours on the machine do not decide it.
    growth = large.cpu / small.cpu
    print(f"ten times the kernels took {growth:.1f} times the CPU time")
    within = large.seconds < SECONDS and large.peak < MEMORY_BYTES and growth <= GROWTH
    print("within the limits" if within else f"over a limit: {SECONDS:.0f} s, {MEMORY_BYTES} bytes, {GROWTH} times")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
