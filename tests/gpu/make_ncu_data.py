"""Write the counters of the made kernels as test data: `python -m tests.gpu.make_ncu_data`, on a GPU.

Leaves in tests/data/ncu: `faults.csv`, ncu's raw page less the columns that nothing is made of, and `faults.json`,
how it was taken.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.gpu import faulty_kernels

from inferprof.plugins import Profiler
from inferprof.profilers import capturing, ncu
from inferprof.readers.ncu_metrics import WANTED
from inferprof.tables.counters import kernel_faults
from inferprof.tables.counters.kernel_faults import Finding
from inferprof.tables.counters.ncu_choice import Choice, Kernel

DATA: Final = Path(__file__).parents[1] / "data/ncu"
DESCRIBING: Final = (
    *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name"),
    *("Context", "Stream", "Block Size", "Grid Size", "Device", "CC"),
)
"""Columns of the raw page that are no metrics."""


def profiler() -> Profiler:
    """ncu on a launch of each made kernel in an iteration."""
    kernels = tuple(Kernel(name, (name,), configs=1) for name in faulty_kernels.KERNELS)
    return ncu.looking_into(Choice(kernels, share=1.0))


def capture(report: Path) -> Path:
    """Run all made kernels under ncu; the report, and beside it its raw page as CSV, whose path is returned.

    Raises UserError where there is no ncu, CaseFailed where it may not or cannot count, ToolError where it failed.
    """
    capturing.capture(profiler(), [sys.executable, faulty_kernels.__file__, "all"], report)
    page = [
        capturing.executable(ncu.NAME, ncu.PRODUCT),
        "--import",
        str(report),
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
    ]
    done = subprocess.run(page, check=True, capture_output=True, text=True)
    target = report.with_suffix(".csv")
    target.write_text(done.stdout, encoding="utf-8")
    return target


def essential(page: str) -> list[list[str]]:
    """Header, units and launches of a raw page, of the columns that describe a launch or that metrics are made of."""
    rows = list(csv.reader(page[page.index('"ID"') :].splitlines()))
    kept = [index for index, name in enumerate(rows[0]) if name in DESCRIBING or name in WANTED]
    return [[row[index] for index in kept] for row in rows if row]


def must_read() -> dict[str, int]:
    """Kernel → bytes that it must read on this GPU."""
    gpu = faulty_kernels.Gpu()
    return {name: gpu.plan(name).reads for name in faulty_kernels.KERNELS}


def facts() -> dict[str, Any]:
    """How the data were taken: GPU, ncu, and what each kernel must read."""
    from cuda.core import Device

    version = subprocess.run(
        [capturing.executable(ncu.NAME, ncu.PRODUCT), "--version"], check=True, capture_output=True, text=True
    ).stdout
    return {
        "gpu": Device().name,
        "ncu": version.strip().splitlines()[-1],
        "must_read": must_read(),
    }


def findings(page: Path, must_read: Mapping[str, float]) -> dict[str, list[Finding]]:
    """Kernel → the verdicts on it, out of a raw page."""
    columns = [column.name for column in dataclasses.fields(Finding)]
    table = kernel_faults.of_launches(ncu.read(page), must_read)
    return {
        str(name): [Finding(*row) for row in rows[columns].itertuples(index=False)]
        for name, rows in table.groupby("name")
    }


def main() -> None:
    """Capture, and write both files."""
    DATA.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = capture(Path(folder, "faults.ncu-rep")).read_text(encoding="utf-8")
    with (DATA / "faults.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(essential(page))
    (DATA / "faults.json").write_text(json.dumps(facts(), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
