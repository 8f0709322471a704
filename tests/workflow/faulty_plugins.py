"""Plug-ins that fail at a stage, each in its own way: loaded by INFERPROF_PLUGINS in every process of a study.

Where the fault is injected stands in the names: variant `load_crash`, precision `audit_hang`, profiler `export_disk`.
What is no plug-in's code (audit, accuracy, expect) is replaced in the process that runs it.
Each job loads this module: what only a few of them need is imported where it is used.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inferprof.allowed import TEXT, Option
from inferprof.backends import ort
from inferprof.errors import CaseFailed
from inferprof.plugins import Backend, BuildRequest, ConvertRequest, OpenRequest, Precision, Profiler, Tolerance

if TYPE_CHECKING:
    import pandas as pd

FAULTS = ("fail", "error", "memory", "nonsense", "crash", "kill", "disk", "hang")
RESULTS = FAULTS[:4]
"""Faults that are results of a case; the others end its job."""
OF_PRECISION = ("convert", "audit", "accuracy", "expect")
OF_VARIANT = ("build", "load", "first", "measure", "close")
OF_PROFILER = ("capture", "export", "table")
NONSENSE = b"\x00nonsense\xff"
LONG_S = 600


def strike(fault: str) -> None:
    """Fail in the way of a fault; `nonsense` is up to the caller."""
    if fault == "fail":
        raise CaseFailed("injected: fail")
    if fault == "error":
        raise RuntimeError("injected: error")
    if fault == "memory":
        np.empty(1 << 60, np.uint8)
    if fault == "crash":
        ctypes.string_at(0)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "disk":
        with Path("/dev/full").open("wb") as file:
            file.write(NONSENSE)
    if fault == "hang":
        time.sleep(LONG_S)


def struck(stage: str, name: str) -> str | None:
    """The fault that a name asks for at a stage."""
    wanted, _, fault = name.partition("_")
    return fault if wanted == stage and fault in FAULTS else None


def at(stage: str, name: str) -> bool:
    """Strike where the name asks for it at this stage; whether it asks for nonsense."""
    fault = struck(stage, name)
    if fault:
        strike(fault)
    return fault == "nonsense"


# --- runtimes --------------------------------------------------------------------------------------------------


class FaultySession:
    """ONNX Runtime's session on the CPU, but for what the variant asks for."""

    def __init__(self, session: Any, variant: str) -> None:
        self._session = session
        self._variant = variant
        self._runs = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def enqueue(self) -> None:
        self._session.enqueue()
        self._runs += 1
        if at("first" if self._runs == 1 else "measure", self._variant):
            for buffer in self._session.outputs().values():
                buffer.array[...] = np.nan


@contextlib.contextmanager
def open_faulty(request: OpenRequest) -> Iterator[Any]:
    """The session; with nonsense at `load`, something that is none."""
    if at("load", request.variant.name):
        yield object()
        return
    with ort.open_cpu(request) as session:
        yield FaultySession(session, request.variant.name)
        at("close", request.variant.name)


def build(request: BuildRequest) -> dict[str, Any]:
    """An engine that is the graph itself."""
    if at("build", request.variant.name):
        request.out.write_bytes(NONSENSE)
        return {"bytes": float("nan")}
    shutil.copyfile(request.onnx, request.out)
    return {"bytes": request.out.stat().st_size}


FAULTY = Backend(
    name="faulty",
    title="fails where it is told to",
    where="cpu",
    artifact="engine",
    open=open_faulty,
    build=build,
    refuses=lambda case, machine: None,
    options={"fault": Option("what fails", TEXT)},
)


# --- number formats --------------------------------------------------------------------------------------------


def precision(name: str) -> Precision:
    """A number format whose graph is the fp32 graph."""

    def convert(request: ConvertRequest) -> dict[str, Any]:
        if at("convert", name):
            request.out.write_bytes(NONSENSE)
        else:
            shutil.copyfile(request.onnx, request.out)
        return {"method": "copied", "not_reproducible": []}

    return Precision(name, name, "onnx", convert, Tolerance(20, 10, "of a test"), "float16", "fp16", "fp16")


globals().update({f"{stage}_{fault}": precision(f"{stage}_{fault}") for stage in OF_PRECISION for fault in FAULTS})


def replace_stage(words: Sequence[str]) -> None:
    """Put the fault in the place of the function that this process is going to call."""
    verb = words[0] if words else ""
    match = re.search(rf"\b{verb}_({'|'.join(FAULTS)})\b", " ".join(words)) if verb in OF_PRECISION[1:] else None
    if match is None:
        return
    from inferprof.model import accuracy, audit, export

    fault = match[1]

    def instead(*arguments: Any, **_: Any) -> Any:
        strike(fault)
        if verb == "expect":
            arguments[-1].write_bytes(NONSENSE)
        return {"outcome": "splendid", "macs": float("nan")}

    module, function = {"audit": (audit, "audit"), "accuracy": (accuracy, "measure"), "expect": (export, "expect")}[
        verb
    ]
    setattr(module, function, instead)


# --- profilers -------------------------------------------------------------------------------------------------


def profiler(name: str) -> Profiler:
    """A tool in front of the run; its capture is a line of text."""

    def command(argv: Sequence[str], out: Path) -> list[str]:
        return [sys.executable, __file__, name, str(out), *argv]

    def finish(out: Path, run: Any) -> None:
        del run
        if at("export", name):
            out.write_bytes(NONSENSE)

    def read(path: Path) -> pd.DataFrame:
        import pandas as pd

        from inferprof.tables import schema

        if path.read_text("utf-8") != "watched":
            raise ValueError(f"{path.name} is not a capture")
        if at("table", name):
            return pd.DataFrame({"nonsense": [1]})
        row = {"level": "run", "name": name, "metric": "report_bytes", "value": 7.0}
        return schema.conform(pd.DataFrame([row]), name)

    return Profiler(name, ".txt", lambda case, machine: None, command, read, finish=finish, iterations=1)


globals().update({f"{stage}_{fault}": profiler(f"{stage}_{fault}") for stage in OF_PROFILER for fault in FAULTS})


if __name__ == "__main__":  # the tool: it watches the command behind its own two arguments
    _, tool, capture, *watched = sys.argv
    done = subprocess.run(watched, check=False)
    if struck("capture", tool) == "fail":
        sys.exit("injected: fail")
    Path(capture).write_bytes(NONSENSE if at("capture", tool) else b"watched")
    sys.exit(done.returncode)

replace_stage(sys.argv[1:])
