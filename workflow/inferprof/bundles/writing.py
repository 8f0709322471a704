"""Which files of a results folder a bundle takes, and how they are made small enough."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

import inferprof
from inferprof import documents
from inferprof.bundles import archive
from inferprof.bundles.scrub import Damaged, scrubber, secrets
from inferprof.case import OF_DUELS, Case
from inferprof.documents import Environment, Record
from inferprof.errors import UserError, unknown
from inferprof.files import left_out, make_folder, naming, unless_damaged, written_whole
from inferprof.secret import redact
from inferprof.tables.records import CASE_KEY, read_cases, rows_of
from inferprof.words import counted

CAPTURES: Final = (".sqlite", ".csv", ".json", ".json.gz")
"""What may be handed on of a capture. The reports of nsys and ncu may not: they hold command lines and variables."""

ROUND_OF_A_DUEL: Final = "[0-9]" * len(str(OF_DUELS)) + "*"
"""Of cases that no config names, too."""

VERIFIED: Final = ("verify.json", "verify.txt", "log/verify/*.log")
"""What `inferprof verify` leaves in its folder: worth sending also where no case of it ran."""


@dataclass(frozen=True)
class Written:
    """What became of a bundle."""

    path: Path
    files: int
    bytes: int
    left_out: tuple[str, ...]
    models: tuple[str, ...] = ()
    """Whose own files are not in it."""
    damaged: tuple[str, ...] = ()
    """Files that are not in it, since they can't be read."""

    def render(self) -> str:
        """As lines of text."""
        lines = [f"{self.path}: {counted(self.files, 'file')} in {self.bytes} bytes"]
        if self.models:
            lines.append(f"not in it: the descriptions, Python and ONNX files of {', '.join(self.models)} in models/")
        lines += [f"left out, since it can't be read: {name}" for name in self.damaged]
        return "\n".join(lines + [f"left out to stay within --max-size: {name}" for name in self.left_out])


def write(
    results: Path,
    study: str,
    machine: str,
    baseline: str | None = None,
    out: Path | None = None,
    max_bytes: int | None = None,
) -> Written:
    """Write the measured files of a study on a machine as a bundle: the same bytes each time.

    Without `out` it goes to reports/{study}/{machine}.bundle.zip; without `baseline` that of the config holds.
    Above `max_bytes` the captures are left out, largest first, then the logs; what the report is made of stays.
    Raises UserError where there is no such study, nothing was measured, or the rest is still too large.
    """
    study = _folder(results, study, machine)
    cases = _cases(results, study, machine)
    names = {f"{case.precision}/{case.backend}/{case.variant}" for case in cases}
    if baseline and cases and baseline not in names:
        raise unknown("baselines", [baseline], names)
    paths = sorted({path.relative_to(results).as_posix() for path in _files(results, study, machine, cases)})
    _require_own(results, paths)
    every = [name for name in paths if name.startswith(f"{machine}/benchmark/")]
    records = [name for name in every if unless_damaged(documents.read, results / name, "record", results)]
    if not records and VERIFIED[0] not in paths:
        read = " that can be read" if every else ""
        raise UserError(f"{results} holds no record{read} of {study} on {machine}: nothing to bundle")
    damaged = [name for name in every if name not in records]
    hidden = secrets(_public(results, machine, cases), results.absolute(), Path.cwd(), Path(__file__).parents[2])
    scrubbed = scrubber(hidden)
    with tempfile.TemporaryDirectory() as private:
        clean = Path(private)
        files: dict[str, Any] = {}
        for name in sorted({*paths} - {*damaged}):
            try:
                files[name] = _put(scrubbed(results / name), clean / name)
            except Damaged as error:
                left_out(str(error))
                damaged.append(name)
        facts = _facts(clean, study, machine, records)
        lost = [{"file": name, "bytes": (results / name).stat().st_size} for name in damaged]
        manifest = {**facts, "baseline": baseline or facts["baseline"], "left_out": lost, "files": files}
        out = out or results / "reports" / study / f"{machine}.bundle.zip"
        with written_whole(out) as partial:
            _write_within(partial, manifest, clean, max_bytes)
            size = partial.stat().st_size
    fits_not = tuple(entry["file"] for entry in manifest["left_out"] if entry["file"] not in damaged)
    models = tuple(dict.fromkeys(case.model for case in cases))
    return Written(out, len(manifest["files"]), size, fits_not, models, tuple(damaged))


def _folder(results: Path, study: str, machine: str) -> str:
    """The study's folder in reports/: of a study on several machines each has one of its own, STUDY/MACHINE."""
    own = f"{study}/{machine}"
    return own if (results / "reports" / own / "cases.csv").exists() else study


def _cases(results: Path, study: str, machine: str) -> list[Case]:
    """Every case of the study on this machine, also the refused: the report speaks of their graphs too."""
    path = results / "reports" / study / "cases.csv"
    cases = read_cases(path)
    rows = rows_of(cases[cases["machine"] == machine])
    if not rows and not (results / VERIFIED[0]).exists():
        raise UserError(f"{path} names no case of the machine {machine}")
    return [Case(*(row[key] for key in CASE_KEY)) for row in rows]


def _files(results: Path, study: str, machine: str, cases: Sequence[Case]) -> Iterator[Path]:
    """What is measured or recorded, of these cases, graphs and this machine; no weights, engines or reports."""
    for name in ("cases.csv", "profilers.json", "config.json", "selection.csv"):
        yield from results.glob(f"reports/{study}/{name}")
    yield from (results / machine).glob("*.json")
    for name in VERIFIED:
        yield from results.glob(name)
    for case in cases:
        yield from results.glob(f"{machine}/benchmark/{case}/r*.json")
        yield from results.glob(f"{machine}/serving/*/{case}.json")
        for stage in ("trtexec", "diagnosis"):
            yield from results.glob(f"{machine}/{stage}/{case}.json")
        yield from results.glob(f"{machine}/table/*/{case}.parquet")
        captured = [
            path for name in (f"{case}.*", f"{case}_*.csv") for path in results.glob(f"{machine}/capture/*/{name}")
        ]
        yield from (path for path in captured if path.name.endswith(CAPTURES))
        for log in (f"*/{case}.log", f"*/*/{case}.log", f"benchmark/{case}/r*.log"):
            yield from results.glob(f"log/{machine}/{log}")
    for model in dict.fromkeys(
        case.model for case in cases
    ):  # the search for its best case, from which it is replayed
        yield from results.glob(f"{machine}/best/{model}.json")
        yield from results.glob(f"{machine}/best/{model}.py")
        yield from results.glob(f"{machine}/benchmark/{model}/*/*/*/*/r{ROUND_OF_A_DUEL}.json")
    for graph in dict.fromkeys(f"{case.model}/{case.precision}" for case in cases):
        yield from results.glob(f"onnx/{graph}.*.json")
        yield from results.glob(f"log/onnx/{graph}.*log")
        yield from results.glob(f"log/onnx/{graph.split('/')[0]}/fp32.log")
        yield from results.glob(f"{machine}/engine/{graph}/*/*/*.build.json")
        yield from results.glob(f"aot-*/engine/{graph}/*/*/*.build.json")


def _require_own(results: Path, names: Iterable[str]) -> None:
    """Raise UserError for a file that a link leads to from outside, that is none, or whose name tells a secret."""
    root = results.resolve()
    for name in names:
        path = (results / name).resolve()
        if not path.is_relative_to(root) or not path.is_file():
            raise UserError(f"{results / name} is no file of the results folder but a link out of it, or a device")
        if redact(name) != name:
            raise UserError(f"{results} holds a file whose name tells a secret: {redact(name)}; rename it")


def _facts(results: Path, study: str, machine: str, records: Iterable[str]) -> dict[str, Any]:
    """What the manifest says apart from the files, out of their content. Raises UserError for a faulty one."""
    contents: list[Record] = [documents.read(results / name, "record") for name in records]
    environment = results / machine / "environment.json"
    config = results / "reports" / study / "config.json"
    described = unless_damaged(documents.read, environment, "environment") if environment.exists() else None
    given = unless_damaged(documents.read, config, "config") if config.exists() else None
    return {
        "schema": archive.SCHEMA,
        "study": study,
        "machine": machine,
        "baseline": given.baseline if given else None,
        "inferprof": inferprof.__version__,
        "git": sorted({record.environment.git for record in contents if record.environment.git}),
        "packages": msgspec.to_builtins(described.packages if described else {}),
        "last_measured": max((record.started for record in contents), default=None),
    }


def _public(results: Path, machine: str, cases: Iterable[Case]) -> Iterator[str]:
    """Words that the report is about: a variable of the same content is no secret."""
    yield machine
    for case in cases:
        yield str(case)
    environment = results / machine / "environment.json"
    if environment.exists():
        facts: Environment | None = unless_damaged(documents.read, environment, "environment")
        yield from (gpu.name for gpu in (facts.gpus if facts and isinstance(facts.gpus, list) else ()))
        yield str(facts and facts.cpu and facts.cpu.model)


def _put(content: bytes, path: Path) -> dict[str, Any]:
    """Write a file; what the manifest says of it."""
    make_folder(path.parent)
    with naming(path):
        path.write_bytes(content)
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _write_within(out: Path, manifest: dict[str, Any], folder: Path, max_bytes: int | None) -> None:
    """Write the archive, with fewer files each time until it is small enough."""
    while True:
        packed = archive.write(out, manifest, folder, manifest["files"])
        excess = out.stat().st_size - max_bytes if max_bytes is not None else 0
        if excess <= 0:
            return
        droppable = sorted((name for name in manifest["files"] if _rank(name)), key=lambda n: (_rank(n), -packed[n]))
        if not droppable:
            raise UserError(
                f"--max-size {max_bytes}: without any capture and log the bundle still has {out.stat().st_size} bytes"
            )
        for name in droppable:
            if excess <= 0:
                break
            excess -= packed[name]
            manifest["left_out"].append({"file": name, "bytes": manifest["files"].pop(name)["bytes"]})


def _rank(name: str) -> int:
    """1: a capture, goes first; 2: a log; 0: the report is made of it. Of a capture that is the run's own record."""
    if "/capture/" in name:
        return 0 if name.endswith(".record.json") else 1
    return 2 if name.startswith("log/") else 0
