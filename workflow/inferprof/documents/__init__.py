"""One type per kind of JSON file in a results folder: it says what is read, checked, written and published.

Reading, checking, writing and schemas/results.schema.json follow from the types. Numbers are finite and in range
once they are here, and an outcome is ok with all its parts, or failed with a reason.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from inferprof.documents.base import Document, OfCase
from inferprof.documents.diagnosed import Diagnosis
from inferprof.documents.engine import Build, Trtexec
from inferprof.documents.graph import Accuracy, Audit, Convert, Cost, Partition, Sensitivity
from inferprof.documents.machine import Bandwidth, Ceilings, Environment, Links
from inferprof.documents.record import Record, Watched
from inferprof.documents.serving import Serving
from inferprof.documents.study import Bundle, StudyConfig, Threshold
from inferprof.documents.trail import Trail
from inferprof.errors import UserError, require_file

Kind = Literal[
    "record",
    "watched",
    "convert",
    "audit",
    "accuracy",
    "sensitivity",
    "cost",
    "partition",
    "environment",
    "bandwidth",
    "ceilings",
    "links",
    "build",
    "trtexec",
    "diagnosis",
    "config",
    "profilers",
    "bundle",
    "trail",
    "serving",
]
"""The kinds of JSON files in a results folder."""
TYPES: Mapping[Kind, Any] = {
    "record": Record,
    "watched": Watched,
    "convert": Convert,
    "audit": Audit,
    "accuracy": Accuracy,
    "sensitivity": Sensitivity,
    "cost": Cost,
    "partition": Partition,
    "environment": Environment,
    "bandwidth": Bandwidth,
    "ceilings": Ceilings,
    "links": Links,
    "build": Build,
    "trtexec": Trtexec,
    "diagnosis": Diagnosis,
    "config": StudyConfig,
    "profilers": dict[str, str],
    "bundle": Bundle,
    "trail": Trail,
    "serving": Serving,
}
NOT_OURS = "not what inferprof writes: move it away and run the study again"
OF_ANOTHER = "move it away and run the study again"
LONGEST_FAULT = 200
"""Characters of what is wrong with a file: it may quote the file."""
CASE_FOLDERS = {"benchmark": 0, "capture": 1, "trtexec": 0, "diagnosis": 0, "serving": 1}
"""Folders of a machine with a file per case → how many folders lie between."""
CASE_PARTS = 5
T = TypeVar("T", bound=Document)


def decode(content: bytes, kind: Kind) -> Any:
    """The document in JSON. Raises ValueError, in one line that says where, for anything else."""
    try:
        return _decoder(kind).decode(content)
    except msgspec.ValidationError as error:
        raise ValueError(f": {_fault(error)}") from None
    except (ValueError, RecursionError) as error:
        why = next(_not_finite(content), None)
        raise ValueError(f": {why}" if why else f" is not JSON: {one_line(str(error))}") from None


def read(path: Path, kind: Kind, root: Path | None = None) -> Any:
    """The document in a file. Raises UserError where it is missing, not what inferprof writes, or of another case.

    With `root` only what the path says below that folder must agree.
    """
    try:
        content = require_file(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    try:
        document = decode(content, kind)
    except ValueError as error:
        raise UserError(f"{path}{error}; {NOT_OURS}") from None
    if difference := _not_of_its_path(document, path if root is None else path.relative_to(root)):
        raise UserError(f"{path}: {difference}; {OF_ANOTHER}")
    return document


def thresholds_of(study: Path) -> dict[str, Threshold]:
    """Those of the config.json of a study's folder under reports/; none where older versions wrote none."""
    config = study / "config.json"
    given: dict[str, Threshold] = read(config, "config").thresholds if config.exists() else {}
    return given


def _not_of_its_path(document: Any, path: Path) -> str | None:
    """What the content says otherwise than the path: …/{machine}/{stage}/{case}[/r{round}.json]."""
    case: OfCase | None = getattr(document, "case", None)
    stem = path.name.split(".")[0]
    if case is None:
        return _of_another(document, path)
    parts = (*path.parts[:-1], stem)
    if isinstance(document, Record):
        parts = parts[:-1]
    stage = next((n for n, between in CASE_FOLDERS.items() if parts[-CASE_PARTS - between - 1 :][:1] == (n,)), None)
    if stage is None:
        return None
    place = "/".join(parts[-CASE_PARTS:])
    if case.path != place:
        return f"it is of the case {one_line(case.path)}, not of {place}"
    machine = parts[: -CASE_PARTS - CASE_FOLDERS[stage] - 1][-1:]
    own: str | None = getattr(document, "machine", None)
    if own and machine and machine != (own,):
        return f"it is of the machine {one_line(own)}, not of {machine[0]}"
    if isinstance(document, Serving) and document.policy and document.policy.name != parts[-CASE_PARTS - 1]:
        return f"it is of the policy {one_line(document.policy.name)}, not of {parts[-CASE_PARTS - 1]}"
    if isinstance(document, Record) and path.name != f"r{document.round}.json":
        return f"it is of round {document.round}, not of {path.stem}"
    return None


def _of_another(document: Any, path: Path) -> str | None:
    """The same of what is of no case: a machine, a model's search, or a graph, perhaps at a shape."""
    what, own, place = "", None, ""
    match document, (*path.parts[:-1], *path.name.split(".")):
        case Environment(), (folder, "environment", "json"):
            what, own, place = "machine", document.machine, folder
        case Trail(), (*_, "best", model, "json"):
            what, own, place = "model", document.model, model
        case Audit() | Accuracy() | Sensitivity(), (*_, precision, "audit" | "accuracy" | "sensitivity", "json"):
            what, own, place = "number format", document.precision, precision
        case Cost(), (*_, shape, "cost", "json") if not {*shape.split("_")} <= {
            *(document.shape or shape).split("_")
        }:
            what, own, place = "shape", document.shape, shape
    return f"it is of the {what} {one_line(own)}, not of {place}" if own and own != place else None


@functools.cache
def _decoder(kind: Kind) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(TYPES[kind])


def _not_finite(content: bytes) -> Iterator[str]:
    """Where NaN or infinity stand in what would else be JSON."""

    def within(value: Any, place: str) -> Iterator[str]:
        if isinstance(value, float) and not math.isfinite(value):
            yield f"{place.lstrip('.') or 'top level'}: {value} is not a finite number"
        entries = value.items() if isinstance(value, dict) else ()
        for key, entry in entries:
            yield from within(entry, f"{place}.{one_line(key)}")
        for index, entry in enumerate(value if isinstance(value, list) else ()):
            yield from within(entry, f"{place}[{index}]")

    with contextlib.suppress(ValueError, RecursionError):
        yield from within(json.loads(content), "")


def _fault(error: msgspec.ValidationError) -> str:
    """`boundaries.call.samples_ns[3]: Expected …`; what a whole document lacks names its own place."""
    fault, _, place = str(error).partition(" - at `")
    place = place.strip("`$.") or ("" if fault.startswith("schema: ") else "top level")
    return f"{place}: {one_line(fault)}" if place else one_line(fault)


def one_line(text: str) -> str:
    """Without what a terminal would take for more than text, and shortened in its middle where it is very long."""
    line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    half = LONGEST_FAULT // 2
    return line if len(line) <= LONGEST_FAULT else f"{line[:half]} … {line[-half:]}"
