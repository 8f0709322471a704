"""What to do next about a row of verify, by what its reason says. docs/new-gpu.md has the same symptoms at length."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from inferprof.verify.rows import Row

GUIDE: Final = "docs/new-gpu.md"


@dataclass(frozen=True)
class Symptom:
    """Words of a reason, and what to do about them whichever row has it."""

    said: re.Pattern[str]
    next_step: str


def _symptom(said: str, step: str) -> Symptom:
    return Symptom(re.compile(said, re.IGNORECASE), step)


SYMPTOMS: Final = (
    _symptom(r"ERR_NVGPUCTRPERM", f"allow counters as {GUIDE} says (Counters), then verify again"),
    _symptom(r"needs row", "fix the row that is named first, then verify again"),
    _symptom(r"was not reached", "give verify more `--minutes`, or fewer rows with `--only`"),
    _symptom(
        r"compute capability [\d.]+: (needs|supports)",
        "nothing to fix: this GPU has no such hardware, or the runtime does not support it",
    ),
    _symptom(
        r"^no GPU|: no GPU|sees no GPU|NVML:",
        f"verify on the machine with the GPU; there, `nvidia-smi` must list it ({GUIDE}, Driver)",
    ),
    _symptom(r"libnvinfer\.so", "use the container, whose TensorRT is of the major version that ONNX Runtime wants"),
    _symptom(r"not on PATH", "use the container, which has the tool, or put it on PATH"),
    _symptom(r"needs a C\+\+ compiler", "apt install g++"),
    _symptom(
        r"is not installed|No module named|needs \S+ or newer",
        "use the container (`make image`), or install it from requirements/study.txt",
    ),
    _symptom(
        r"libcu\w+\.so|libcudnn|could not load",
        "use the container; else torch of CUDA 13 must be installed: it brings these libraries",
    ),
    _symptom(r"out of memory", "end what else holds the GPU's memory (`nvidia-smi`), then verify again"),
    _symptom(
        r"held by another tool|driver resource",
        "pause DCGM (`dcgmi profile --pause`) or end the other profiler, then verify again",
    ),
    _symptom(
        r"does not fit the driver|insufficient|CUDA driver version", f"install a newer driver ({GUIDE}, Driver)"
    ),
    _symptom(r"was not done after", "look at the end of the row's log; with a slow machine give more `--minutes`"),
    _symptom(
        r"was ended by SIG", "a crash of a library: send the row's log and `inferprof probe` with the report of it"
    ),
)
"""The first that fits counts."""


def next_step(row: Row, outcome: str, reason: str) -> str | None:
    """What to do about a row that failed or is not here; None for one that passed."""
    if outcome == "pass":
        return None
    return next((symptom.next_step for symptom in SYMPTOMS if symptom.said.search(reason)), row.next_step)
