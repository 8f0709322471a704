"""What `nsys stats` and `nsys profile --stats` write: CSV and text of 2020 to 2026."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pandas as pd

from inferprof.readers.kind import Capture, Head, Kind, Lack
from inferprof.words import figure

SHOWN: Final = 3
PROGRESS: Final = re.compile(r"\[\d+/\d+\]")
"""How nsys counts its steps, in front of text tables."""
ALL: Final = "all rows of `nsys stats`"
WORTH_SAYING: Final = 0.01
"""Share of the time from which on missing rows are spoken of."""
_CSV_HEADER: Final = re.compile(
    r'^(?:"?(?:Time ?\(%\)|Total(?: \([^)\n]+\))?|Start \([^)\n]+\))"?[,;\t]|Count,QCount,)', re.MULTILINE
)
"""How the tables of `nsys stats --format csv` begin, perhaps behind what the tool or the program printed."""
_TEXT_MARKS: Final = (
    "CUDA Kernel Statistics:",
    "CUDA API Statistics:",
    "** CUDA",
    "stats report",
    "Generating SQLite file",
    "NOTICE: Existing SQLite export",
    "Time(%)",
    "Time (%)",
)


def recognises(head: Head) -> bool:
    """Whether there may be tables of nsys in it."""
    if _CSV_HEADER.search(head.text):
        return True
    json = head.text.startswith(("{", "[")) and not PROGRESS.match(head.text)
    return not json and any(mark in head.text for mark in _TEXT_MARKS)


def read(path: Path) -> Capture:
    """The rows of its summaries and traces."""
    from inferprof.readers import nsys_stats

    rows = nsys_stats.read(path, "nsys")
    untold = rows.loc[rows["metric"] == "untold_share"].set_index("name")["value"]
    lacks = (
        *(
            Lack(
                f"{100 * share:.0f} % of the time of {report}: rows are cut off, and shares are of the others",
                ALL,
            )
            for report, share in untold.items()
            if WORTH_SAYING <= share < 1
        ),
        Lack(
            "when each kernel ran: how long an inference takes, and what the GPU waits for",
            "nsys export --type sqlite REPORT.nsys-rep",
        ),
    )
    reports = ", ".join(dict.fromkeys(map(str, untold.index)))
    ran = ["nsys stats", f"reports {reports}"]
    return Capture("nsys", ran, rows=rows, notes=list(_longest(rows)), lacks=lacks)


def _longest(rows: pd.DataFrame) -> Iterator[str]:
    """`calls: 97 × cudaFree 12.3 ms; …`: what takes longest, or is largest, apart from kernels."""
    for level, what in (("api", "calls"), ("memcpy", "copies"), ("memset", "memsets"), ("range", "ranges")):
        for metric, unit in (("duration_total", "ms"), ("bytes_total", "MB")):
            own = rows[rows["level"].eq(level) & rows["metric"].eq(metric)]
            summed = own.groupby("name")[["instances", "value"]].sum().nlargest(SHOWN, "value").astype(float)
            listed = (
                f"{name} {count:,.0f} × {figure(value / count / 1e6)} {unit}"
                for name, count, value in zip(summed.index, summed["instances"], summed["value"], strict=True)
            )
            if len(summed):
                yield f"{what}: {'; '.join(listed)}"


NSYS_STATS: Final = Kind(
    name="nsys_stats",
    title="an Nsight Systems file",
    recognises=recognises,
    read=read,
    tool="nsys",
    rank=30,
)
