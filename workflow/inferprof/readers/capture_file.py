"""What kind of file a capture is, by its content: the one place that looks. Everything unreadable is refused here."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import sqlite3
import zlib
from pathlib import Path
from typing import Final, Literal

from inferprof.errors import UserError, in_one_line
from inferprof.files import opened, read_json, unpacked

CaptureKind = Literal[
    "nsys_sqlite", "nsys_stats", "ncu_report", "ncu_csv", "not_measured", "kineto", "ort_profile", "trt_layers"
]

_HEAD_BYTES: Final = 1 << 16
"""Text tables stand behind what the program printed."""
_REFUSED_MAGIC: Final = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the file itself: run `git lfs pull`"),
    (
        b"NVIDIA Tegra Profiler Report",
        "is a binary Nsight Systems report: run `nsys export --type sqlite` on it and read the .sqlite",
    ),
    (b"PK\x03\x04", "is an archive: unpack it first"),
    (b"BZh", "is compressed with bzip2: unpack it first"),
    (b"\xfd7zXZ\0", "is compressed with xz: run `xz -dk` on it first"),
)
_TAR_MAGIC: Final = slice(257, 262)
_NCU_REPORT: Final = b"NVR\0"
_NCU_TEXT_PAGE: Final = re.compile(r"^\s+Section: ", re.MULTILINE)
_STATS_HEADER: Final = re.compile(r"^(?:Time \(%\)|Total \([^)\n]+\)|Start \([^)\n]+\))[,;\t]", re.MULTILINE)
"""How the tables of `nsys stats --format csv` begin, perhaps behind what the tool or the program printed."""
_PROGRESS: Final = re.compile(r"\[\d+/\d+\]")
"""How nsys counts its steps, in front of text tables."""
_NOT_MEASURED: Final = '{\n "not_measured": '
"""How what `inferprof capture` writes begins, where the tool refused."""
_ORT_EVENT: Final = re.compile(r'\[\s*\{\s*"cat"\s*:\s*"(Session|Node)"')
"""How the list of an ONNX Runtime profile begins."""
_TRT_JSON: Final = re.compile(
    r'\{\s*"Layers"\s*:|\[\s*\{\s*"(?:count|startEnqMs|startInMs)"\s*:|(?:[{,]\s*"(?:[^"\\]|\\.)*"\s*:\s*\[[\d.,\se+-]+\]\s*){2}'
)
"""How the files of trtexec and EngineInspector begin, and a dictionary of two layers or more and their times."""
_TRT_LAYERS: Final = re.compile(r'\{[^{}]*"Layers"\s*:\s*\[')
_TRT_LAYER_DUMP: Final = re.compile(
    r'(?:[^\s{\[][^\n]*\n\s*)*\[?\s*\{\s*"Name"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*"LayerType"\s*:'
)
"""EngineInspector's JSON behind something else, and of single layers, perhaps behind a line of text."""
_TEXT_TABLE_MARKS: Final = (
    "CUDA Kernel Statistics:",
    "CUDA API Statistics:",
    "** CUDA",
    "stats report",
    "Generating SQLite file",
    "NOTICE: Existing SQLite export",
    "Time(%)",
)


def identify(path: Path) -> CaptureKind:
    """Look into the file. Raises UserError, with one line on what it is and what to do, if it cannot be read."""
    head = _head(path)
    for magic, advice in _REFUSED_MAGIC:
        if head.startswith(magic):
            raise UserError(f"{path} {advice}")
    if head.startswith(b"SQLite format 3\0"):
        return _sqlite_kind(path)
    if head.startswith(_NCU_REPORT):
        return "ncu_report"
    if head[_TAR_MAGIC] == b"ustar":
        raise UserError(f"{path} is an archive: unpack it first")
    text = head.decode("utf-8", errors="replace").lstrip("\ufeff \r\n\t")
    if kind := _ncu_kind(path, text):  # before JSON: its text page may begin with a process number in brackets
        return kind
    if _STATS_HEADER.search(text):
        return "nsys_stats"
    if _TRT_LAYER_DUMP.match(text):
        return "trt_layers"
    if text.startswith(("{", "[")) and not _PROGRESS.match(text):
        return _json_kind(path, text)
    if any(mark in text for mark in _TEXT_TABLE_MARKS):
        raise UserError(
            f"{path} is nsys text output: run `nsys stats --format csv` on the report, "
            "or read its .sqlite export, which holds more"
        )
    raise UserError(
        f"{path} is not a capture that can be read; read an Nsight Systems .sqlite export, a CSV of `nsys stats` "
        "as it was written, an Nsight Compute report (.ncu-rep) or CSV, a Kineto trace or an ONNX Runtime profile "
        "(.json, .json.gz)"
    )


def reason_in(path: Path) -> str | None:
    """Why there is no capture, where `inferprof capture` wrote that in its place; None for anything else."""
    if not _head(path).startswith(_NOT_MEASURED.encode()):
        return None
    return str(read_json(path)["not_measured"])


def _head(path: Path) -> bytes:
    try:
        with opened(path) as file:
            return file.read(_HEAD_BYTES)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give one capture file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is cut short or damaged ({error}): copy it again") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def _sqlite_kind(path: Path) -> CaptureKind:
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
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
    return "nsys_sqlite"


def _ncu_kind(path: Path, text: str) -> CaptureKind | None:
    """A CSV of Nsight Compute, also one with messages alone; None for what it did not print."""
    from inferprof.readers.ncu_csv import HEADER

    if HEADER in text:
        return "ncu_csv"
    if _NCU_TEXT_PAGE.search(text):
        raise UserError(
            f"{path} is ncu text output: run `ncu --import X.ncu-rep --csv --page raw` on the report, or read the "
            "report itself; without one, profile again with `--csv --page raw`"
        )
    return "ncu_csv" if "==PROF==" in text or "==ERROR==" in text else None


def _json_kind(path: Path, text: str) -> CaptureKind:
    if text.startswith(_NOT_MEASURED):
        return "not_measured"
    if _ORT_EVENT.match(text):
        return "ort_profile"
    if _TRT_JSON.match(text) or ("traceEvents" not in text and _TRT_LAYERS.match(text)):
        return "trt_layers"
    if text.startswith("["):
        raise UserError(
            f"{path} is a JSON list that no tool here writes: a Kineto trace comes from torch.profiler's "
            "export_chrome_trace, an ONNX Runtime profile from SessionOptions.enable_profiling"
        )
    if "traceEvents" in text or _has_trace_events(path):
        return "kineto"
    raise UserError(f"{path} is JSON without traceEvents: give a trace of torch.profiler's export_chrome_trace")


def _has_trace_events(path: Path) -> bool:
    try:
        return "traceEvents" in json.loads(unpacked(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not whole JSON ({error}): the run that wrote it was cut short") from None
