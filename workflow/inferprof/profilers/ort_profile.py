"""ONNX Runtime's own profile: which operator runs on which execution provider, with or without a GPU."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inferprof.case import Case
from inferprof.machine.hardware import Machine
from inferprof.plugins import Profiler, Run
from inferprof.profilers.capturing import other_reader
from inferprof.readers.capture_file import identify
from inferprof.tables.nodes.ort_facts import SessionFacts

if TYPE_CHECKING:
    import pandas as pd

NAME: Final = "ort_profile"
BACKENDS: Final = "ort_"
"""How the names of ONNX Runtime's backends begin."""
KEPT: Final = ("cat", "pid", "tid", "dur", "ts", "ph", "name")
KEPT_ARGS: Final = (
    "op_name",
    "provider",
    "graph_index",
    "node_index",
    "exec_plan_index",
    "activation_size",
    "parameter_size",
    "output_size",
    "input_type_shape",
    "output_type_shape",
    *(field.name for field in dataclasses.fields(SessionFacts)),
)
"""What an event keeps; what a later version may add could name paths or hosts."""


def command(argv: Sequence[str], out: Path) -> list[str]:
    """The run itself, whose session then writes a profile."""
    return [*argv, "--native-profile", str(out)]


def finish(out: Path, run: Run) -> None:
    """Keep what the reader and a viewer of traces need; packed, which ONNX Runtime does not do itself."""
    from inferprof.readers import ort_events

    del run  # there is no tool to run
    if not out.exists():
        return
    events = ort_events.read(out)
    opener = gzip.open if out.suffix == ".gz" else open
    with opener(out, "wt", encoding="utf-8") as file:
        json.dump([_kept(event) for event in events], file)


def _kept(event: dict[str, Any]) -> dict[str, Any]:
    args = {key: event["args"][key] for key in KEPT_ARGS if key in event["args"]}
    return {**{key: event[key] for key in KEPT}, "args": args}


def read(path: Path) -> pd.DataFrame:
    """The tidy table of a profile, without its first run. Raises UserError for anything else."""
    from inferprof.readers import ort_json
    from inferprof.tables.nodes import providers

    kind = identify(path)
    if kind.name != NAME:
        raise other_reader(path, kind)
    return providers.tidy(ort_json.read_profile(path), NAME)


def refuses(case: Case, machine: Machine) -> str | None:
    """Why a case has no such profile, on whatever machine."""
    del machine
    return None if case.backend.startswith(BACKENDS) else f"{NAME}: {case.backend} is not ONNX Runtime"


ORT_PROFILE: Final = Profiler(
    name=NAME,
    suffix=".json.gz",
    refuses=refuses,
    command=command,
    read=read,
    finish=finish,
    rank=70,
    session=True,
    inside="onnxruntime",
    owner="node",
)
