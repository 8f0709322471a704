"""Binary reports of Nsight Systems (.nsys-rep, .qdrep), which nsys alone can export."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from inferprof import processes
from inferprof.errors import UserError
from inferprof.readers.kind import Kind

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
