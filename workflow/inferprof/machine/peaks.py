"""What NVIDIA says that its GPUs reach at most: peaks.csv, each row with the document that it is taken from.

Rates are dense, in TFLOP/s (TOP/s of integers), and accumulate in FP32 (INT32): GeForce tensor cores are up to twice
as fast where they accumulate in FP16. With 2:4 sparse weights they are `sparsity` times the dense ones. What a
document does not state is empty, and a GPU without a row is unknown: no neighbour's number stands in.

`checked` says what rates and bandwidth were compared with a second time, in November 2026: `document`, copies of
NVIDIA's own documents or their words as others quote them; `others`, those as far as they went and else what others
publish of the GPU; empty, nothing that had all of them.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from inferprof.errors import UserError
from inferprof.units import GIB, GIGA, TERA

Checked = Literal["document", "others", ""]
CHECKED: Final[Mapping[str, Checked]] = {value: value for value in get_args(Checked)}
FILE = Path(__file__).with_suffix(".csv")
KINDS = (
    *("fp64", "fp64_tensor", "fp32", "tf32", "fp16", "fp16_accumulate_fp16", "bf16"),
    *("fp8", "fp8_accumulate_fp16", "fp6", "fp4", "int8", "int4"),
)
"""The columns of rates. fp64 and fp32 are of the CUDA cores, the others of the tensor cores."""
MEMORY_TOLERANCE = 0.1
"""NVML tells less than the nominal memory: ECC and the driver take a part."""


@dataclass(frozen=True)
class Peaks:
    """The peaks of a GPU; None is "not stated"."""

    gpu: str
    flops: Mapping[str, float]
    """Kind → operations per second, dense."""
    sparsity: float
    """How many times faster the tensor cores are with 2:4 sparse weights; 1 where they cannot use these."""
    bandwidth: float | None
    """Bytes per second."""
    l2_bytes: int | None
    sms: int | None
    boost_hz: float | None
    title: str
    url: str
    checked: Checked
    note: str


@dataclass(frozen=True)
class _Row:
    """A row of the file, and what NVML calls such a GPU."""

    names: tuple[str, ...]
    memory: int
    peaks: Peaks


def of(name: str, memory: int | None, sms: int | None = None, mig: bool = False) -> Peaks | None:
    """The peaks of the GPU that NVML names so, with so many bytes of memory and SMs; None: unknown.

    Names are compared as a whole. A GPU whose memory or SMs differ from the document's is another one of the same
    name, and a MIG instance is a part of one.
    """
    bare = name.removeprefix("NVIDIA ")
    matches = [
        row.peaks
        for row in _rows()
        if bare in row.names
        and (memory is None or abs(memory / row.memory - 1) <= MEMORY_TOLERANCE)
        and (sms is None or row.peaks.sms in (None, sms))
    ]
    return matches[0] if len(matches) == 1 and not mig else None


def every() -> tuple[Peaks, ...]:
    """All rows of the file."""
    return tuple(row.peaks for row in _rows())


@functools.cache
def _rows() -> tuple[_Row, ...]:
    """Raises UserError with the line in which a cell is missing, or is not the number that it should be."""
    rows = []
    with FILE.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            try:
                rows.append(_row(row))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                where = f"{FILE.name}, line {reader.line_num} ({row['gpu']})"
                raise UserError(f"{where}: {error!r}; each row has the columns of the first line") from None
    return tuple(rows)


def _row(row: Mapping[str, str]) -> _Row:
    def scaled(column: str, unit: float) -> float | None:
        return float(row[column]) * unit if row[column] else None

    l2_kib, sms = row["l2_kib"], row["sms"]
    peaks = Peaks(
        gpu=row["gpu"],
        flops={kind: float(row[kind]) * TERA for kind in KINDS if row[kind]},
        sparsity=float(row["sparsity"] or 1),
        bandwidth=scaled("bandwidth_gb_s", GIGA),
        l2_bytes=int(l2_kib) << 10 if l2_kib else None,
        sms=int(sms) if sms else None,
        boost_hz=scaled("boost_mhz", 1e6),
        title=row["title"],
        url=row["url"],
        checked=CHECKED[row["checked"]],
        note=row["note"],
    )
    return _Row(tuple(row["names"].split("|")), int(row["memory_gib"]) * GIB, peaks)
