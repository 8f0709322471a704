"""Nsight Compute: its report, its CSV pages, and its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pandas as pd

from inferprof.findings import Answer, Bottleneck, Finding
from inferprof.readers.kind import Capture, Head, Kind, Lack
from inferprof.readers.ncu_launches import Launch
from inferprof.words import counted, ms

_HEADER: Final = '"ID","Process ID",'
_TEXT_PAGE: Final = re.compile(r"^\s+Section: ", re.MULTILINE)
_SAYS: Final = re.compile(r"^==(?:PROF|ERROR)==", re.MULTILINE)
SHOWN: Final = 3
LONGEST_NAME: Final = 50
ADVICE: Final[Mapping[Bottleneck, str]] = {
    "memory": "move fewer bytes: fuse it with its neighbours, narrower formats",
    "compute": "fewer or cheaper operations: tensor cores, narrower formats, less work",
    "latency": "more at once: more blocks and warps, more independent work in each",
    "tail": "another batch or tile, so that blocks fill the last wave",
}
"""What to do about each of counters.bounds."""

_BOTH: Final = {"sm_throughput", "memory_throughput"}
NEAR_PEAK: Final = 80.0
"""Percent. ncu, rule SOLBottleneck: from there on a kernel uses most of what the device has."""
_ALONE: Final[Mapping[str, tuple[Bottleneck, str, Callable[[float], bool]]]] = {
    "sm_throughput": ("compute", "SM throughput in percent", lambda value: value >= NEAR_PEAK),
    "memory_throughput": ("memory", "memory throughput in percent", lambda value: value >= NEAR_PEAK),
    "waves": ("latency", "waves of blocks on the GPU", lambda value: value < 1),
}


def _is_csv(head: Head) -> bool:
    """A CSV of Nsight Compute, also one with messages alone: before JSON, since text may begin with a number in
    brackets."""
    return _HEADER in head.text or (_SAYS.search(head.text) is not None and not _is_text(head))


def _is_text(head: Head) -> bool:
    return _HEADER not in head.text and _TEXT_PAGE.search(head.text) is not None


def _report(path: Path) -> list[Launch]:
    from inferprof.readers import ncu_rep

    return ncu_rep.read(path)


def _csv(path: Path) -> list[Launch]:
    from inferprof.readers import ncu_csv

    return ncu_csv.read(path)


def _text(path: Path) -> list[Launch]:
    from inferprof.readers import ncu_text

    return ncu_text.read(path)


def _capture(launches: Callable[[Path], list[Launch]]) -> Callable[[Path], Capture]:
    def read(path: Path) -> Capture:
        from inferprof.readers import ncu_launches

        launched = launches(path)
        distinct = len({launch.name for launch in launched})
        lacks = [
            Lack(
                "how long an inference takes and what runs beside these kernels, each alone with cold caches",
                "nsys profile --trace=cuda,nvtx …",
                told_by="timeline",
            ),
        ]
        ran = ["Nsight Compute", f"{counted(len(launched), 'launch')} of {counted(distinct, 'kernel')}"]
        rows = ncu_launches.rows(launched, "ncu")
        findings = _bounds(rows)
        answers = [Answer("ncu_bound", "kernel", "found", findings=tuple(findings))] if findings else []
        if not findings or not all(set(finding.evidence) >= _BOTH for finding in findings):
            uncounted = "their throughputs of SMs and memory were not all" if findings else "that was not"
            lacks.insert(0, Lack(f"what bounds these kernels: {uncounted} counted", "ncu --set full …"))
        return Capture("ncu", ran, rows=rows, answers=answers, lacks=lacks)

    return read


def _bounds(rows: pd.DataFrame) -> list[Finding]:
    """What bounds the longest launches, by the two throughputs that every page has."""
    from inferprof.tables.counters import bounds
    from inferprof.tables.records import rows_of
    from inferprof.tables.schema import by_launch
    from inferprof.tables.trace.kernel_class import own_name

    launches = by_launch(rows)
    if "memory_throughput" not in launches and "dram_throughput" in launches:  # of --metrics, which few ask all of
        launches["memory_throughput"] = launches["dram_throughput"]
    wanted = ["duration_total", "sm_throughput", "memory_throughput"]
    if not set(wanted) <= set(launches):
        return _by_one(launches)
    timed = launches.dropna(subset=wanted).astype(dict.fromkeys(wanted, float))
    longest = timed.sort_values("duration_total", ascending=False, kind="stable").drop_duplicates("name")
    findings = []
    for row in rows_of(longest.head(SHOWN)):
        shares = bounds.of_launch({name: value for name, value in row.items() if not pd.isna(value)})
        bound = max(shares, key=lambda name: shares[name])
        reason = (
            f"{ms(row['duration_total'], 4)}, SM {row['sm_throughput']:.1f} %, "
            f"memory {row['memory_throughput']:.1f} %: bound by {bound}"
        )
        evidence = {name: float(row[name]) for name in wanted}
        subject = own_name(str(row["name"]))[:LONGEST_NAME]
        findings.append(Finding(subject, bound, None, reason, evidence, "ncu", None, ADVICE[bound], "low"))
    return findings


def _by_one(launches: pd.DataFrame) -> list[Finding]:
    """The same where only one of the throughputs was counted, or the waves: what that one alone tells."""
    from inferprof.tables.records import rows_of
    from inferprof.tables.trace.kernel_class import own_name

    findings: list[Finding] = []
    longest = launches.reindex(columns=["name", "duration_total", *_ALONE]).astype(dict.fromkeys(_ALONE, float))
    longest = longest.sort_values("duration_total", ascending=False, kind="stable").drop_duplicates("name")
    for row in rows_of(longest.head(SHOWN)):
        for metric, (bound, words, tells) in _ALONE.items():
            value = float(row[metric])
            if tells(value):  # of what was not counted, NaN, none does
                reason = f"{words} {value:.3g}: bound by {bound}, as far as was counted"
                subject, evidence = own_name(str(row["name"]))[:LONGEST_NAME], {metric: value}
                findings.append(Finding(subject, bound, None, reason, evidence, "ncu", None, ADVICE[bound], "low"))
                break
    return findings


NCU_REPORT: Final = Kind(
    name="ncu_report",
    title="an Nsight Compute report",
    recognises=lambda head: head.raw.startswith(b"NVR\0"),
    read=_capture(_report),
    tool="ncu",
    rank=1,
)
NCU_TEXT: Final = Kind(
    name="ncu_text",
    title="Nsight Compute's text",
    recognises=_is_text,
    read=_capture(_text),
    tool="ncu",
    rank=20,
)
NCU_CSV: Final = Kind(
    name="ncu_csv",
    title="an Nsight Compute table",
    recognises=_is_csv,
    read=_capture(_csv),
    tool="ncu",
    rank=21,
)
