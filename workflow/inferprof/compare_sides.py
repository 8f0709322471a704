"""What a comparison reads of each side: records, how accurate the graphs are, and how fast the host was."""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import msgspec

from inferprof import bundles, documents, registry, stats
from inferprof.case import Case
from inferprof.documents import Accuracy
from inferprof.documents.record import Record
from inferprof.errors import UserError
from inferprof.tables.records import CASE_KEY, of_folder, read_cases, rows_of

MOST_FOLDERS: Final = 200_000
"""Of a results folder that is looked through: each case has some ten."""
GRAPHS: Final = "onnx/*/*.accuracy.json"
CASES: Final = "reports/**/cases.csv"


@dataclass(frozen=True)
class Side:
    """A results folder, or a bundle or tar archive of one. accuracy: by `model/precision`."""

    records: Sequence[Record]
    accuracy: Mapping[str, Accuracy]
    unlisted: Sequence[str] = ()
    """Cases with a record that none of its studies has: earlier ones left them, or other configs."""
    planned: frozenset[str] | None = None
    """Cases that its studies were to run, whether they did or not; None where it holds no cases.csv."""
    damaged: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(machine, case) → what is wrong with its files that can't be read as records."""
    unread: Sequence[str] = ()
    """What is wrong with the other files that can't be read."""


@dataclass(frozen=True)
class Fidelity:
    """The accuracy of B's graphs beside A's. lost: (graph, what B's outputs are) of those that B's accuracy fails and
    A's does not."""

    compared: int = 0
    lost: tuple[tuple[str, str], ...] = ()


NONE_COMPARED: Final = Fidelity()


def read(path: Path) -> Side:
    """Both sides are read by this; what can't be read is kept apart. Raises UserError where there is no record."""
    with bundles.opened(path) as folder:
        of_machine = (folder / "benchmark").is_dir()
        files = _files_below(folder)
        records: list[Record] = []
        machines: dict[str, Path] = {}
        damaged: dict[tuple[str, str], str] = {}
        for benchmark in files["benchmark"]:
            sound, lost = of_folder(benchmark)
            records += sound
            machines |= {record.machine: benchmark.parent for record in sound[:1]}
            damaged |= {(benchmark.parent.name, case): "; ".join(why) for case, why in lost.items()}
        if not records:
            why = f" that can be read: {next(iter(damaged.values()))}" if damaged else "s"
            give = "give a results folder, results/MACHINE, a bundle or a tar"
            raise UserError(f"{path} holds no benchmark record{why}; {give}")
        of_round = Counter((record.machine, record.case.path, record.round) for record in records)
        if twice := [key for key, count in of_round.items() if count > 1]:
            machine, case, number = twice[0]
            raise UserError(f"{path} holds round {number} of {case} on {machine} twice: move the copied folder away")
        _require_own_machine(path, folder, machines)
        unread: list[str] = []
        accuracy: dict[str, Accuracy] = {}
        listed: set[str] = set()
        planned: set[str] = set()
        beside = {"accuracy": sorted(folder.parent.glob(GRAPHS)), "cases": sorted(folder.parent.glob(CASES))}
        for file in (beside if of_machine else files)["accuracy"]:
            with _or_said(unread):
                accuracy[f"{file.parent.name}/{file.name.split('.')[0]}"] = documents.read(file, "accuracy")
        for file in (beside if of_machine else files)["cases"]:
            with _or_said(unread):
                cases = [
                    (str(Case(*(row[key] for key in CASE_KEY))), row["outcome"]) for row in rows_of(read_cases(file))
                ]
                listed |= {case for case, _ in cases}
                planned |= {case for case, outcome in cases if outcome == "run"}
        measured = {record.case.path for record in records}
        unlisted = sorted(measured - listed) if listed else ()
        return Side(records, accuracy, unlisted, frozenset(planned) if listed else None, damaged, unread)


def _require_own_machine(path: Path, folder: Path, machines: Mapping[str, Path]) -> None:
    """Raise UserError where the records in a folder are of another machine than the folder's name says.

    machines: machine → the folder of its records. A machine's folder that is given by itself, also as the only one of
    a tar, may have any name.
    """
    for machine, place in machines.items():
        alone = place == folder or (path.is_file() and len(machines) == 1)
        if place.name != machine and not alone:
            raise UserError(f"{place}: its records are of the machine {machine}: move it away, or give it that name")


def _files_below(folder: Path) -> dict[str, list[Path]]:
    """Folders with records, accuracies and cases.csv below a folder. Raises UserError for one that can't be listed,
    or that holds far more than a study does, as / does."""
    refused: list[OSError] = []
    files: dict[str, list[Path]] = {"benchmark": [], "accuracy": [], "cases": []}
    for number, (place, folders, names) in enumerate(os.walk(folder, onerror=refused.append)):
        if number == MOST_FOLDERS:
            raise UserError(f"{folder} holds more than {MOST_FOLDERS:,} folders: give a results folder of it")
        here = Path(place)
        files["benchmark"] += [here / name for name in folders if name == "benchmark"]
        if here.parent.name == "onnx":
            files["accuracy"] += [here / name for name in names if name.endswith(".accuracy.json")]
        if "cases.csv" in names and "reports" in here.relative_to(folder).parts:
            files["cases"].append(here / "cases.csv")
    if refused and not files["benchmark"]:
        raise UserError(f"{refused[0].filename}: {refused[0].strerror}")
    return {kind: sorted(paths) for kind, paths in files.items()}


@contextlib.contextmanager
def _or_said(unread: list[str]) -> Iterator[None]:
    """What is wrong with a file is kept; the others are read."""
    try:
        yield
    except UserError as error:
        unread.append(str(error))


def fidelity(a: Side, b: Side) -> Fidelity:
    """Of the graphs whose accuracy both sides have."""
    both = [graph for graph in a.accuracy if graph in b.accuracy]
    judged = [g for g in both if "not measured" not in (a.accuracy[g].outcome, b.accuracy[g].outcome)]
    lost = [g for g in judged if b.accuracy[g].outcome == "fail" and a.accuracy[g].outcome != "fail"]
    return Fidelity(len(judged), tuple((graph, str(b.accuracy[graph].reason)) for graph in lost))


def of_variants(a: Side, b: Side, variants: tuple[str, str]) -> tuple[Side, Side, int]:
    """A's cases of the first variant and B's of the second, all under its name, and how many cases are left out.

    Left out is what no study of the other folder runs with the other variant: it is not missing.

    Raises UserError where nothing was measured with a variant.
    """
    a, b = (_of_variant(side, variant, variants[1]) for side, variant in zip((a, b), variants, strict=True))
    alone = {
        case
        for own, other in ((a, b), (b, a))
        for case in _held(own) - _held(other)
        if other.planned is not None and case not in other.planned
    }
    kept_a, kept_b = (
        replace(
            side,
            records=[record for record in side.records if record.case.path not in alone],
            damaged={key: why for key, why in side.damaged.items() if key[1] not in alone},
        )
        for side in (a, b)
    )
    return kept_a, kept_b, len(alone)


def _of_variant(side: Side, variant: str, name: str) -> Side:
    """A side's cases of a variant, which is called `name` then."""

    def renamed(path: str) -> str:
        return str(replace(Case.from_path(path), variant=name))

    def is_own(path: str) -> bool:
        return Case.from_path(path).variant == variant

    own = [record for record in side.records if record.case.variant == variant]
    if not own:
        measured = sorted({record.case.variant for record in side.records})
        raise UserError(f"--variants: nothing was measured with {variant}; there is: {', '.join(measured)}")
    of_name = msgspec.structs.replace
    return replace(
        side,
        records=[of_name(record, case=of_name(record.case, variant=name)) for record in own],
        unlisted=[renamed(case) for case in side.unlisted if is_own(case)],
        planned=None if side.planned is None else frozenset(renamed(c) for c in side.planned if is_own(c)),
        damaged={(machine, renamed(case)): why for (machine, case), why in side.damaged.items() if is_own(case)},
    )


def _held(side: Side) -> set[str]:
    """The cases of which a side has files."""
    return {record.case.path for record in side.records} | {case for _, case in side.damaged}


DIFFER: Final = 1 + stats.ONE_ROUND_THRESHOLD
Clock = Literal["yardstick_ns", "yardstick_cpu_ns"]


def on_cpu(case: Case, records: Sequence[Record]) -> bool:
    """Whether a case was computed by a CPU: its backend has no other, or no GPU was there."""
    backend = registry.backends().get(case.backend)
    return bool(backend and backend.where == "cpu") or all(record.environment.gpu is None for record in records)


def beyond(ratio: stats.Ratio, a: Sequence[Record], b: Sequence[Record]) -> stats.Ratio:
    """A ratio on CPUs that calls nothing faster or slower by what the hosts' speeds may be all of: what a host that
    is 1.4 times as slow by its yardstick computes takes at least 1.4 times as long."""
    times = _times(a, b, "yardstick_ns")
    explained = (ratio.verdict == "slower" and times >= DIFFER and ratio.low <= times) or (
        ratio.verdict == "faster" and 1 / times >= DIFFER and ratio.high >= times
    )
    if not explained:
        return ratio
    reason = f"{_said(times)} by the clock, which may be all of the difference"
    return replace(ratio, verdict="undecided", reason="; ".join(filter(None, [reason, ratio.reason])))


def slower(a: Sequence[Record], b: Sequence[Record]) -> str:
    """`B's host was 1.45 times as slow`, by yardsticks of one Python; empty where they are alike or not known."""
    times = _times(a, b, "yardstick_cpu_ns")
    return _said(times) if max(times, 1 / times) >= DIFFER else ""


def _said(times: float) -> str:
    return f"{'B' if times > 1 else 'A'}'s host was {max(times, 1 / times):.2f} times as slow"


def _times(a: Sequence[Record], b: Sequence[Record], clock: Clock) -> float:
    """How many times as long the yardstick took on B's host as on A's; NaN of two Pythons, or where it is unknown."""
    one_python = len({record.environment.python for record in (*a, *b)}) == 1
    return yardstick(b, clock) / yardstick(a, clock) if one_python else math.nan


def yardstick(records: Sequence[Record], clock: Clock = "yardstick_cpu_ns") -> float:
    """The median of all readings, ns, by their time on a core or by the clock; NaN where there is none."""
    readings = [ns for record in records if record.host for ns in getattr(record.host, clock)]
    return stats.summarize(readings).median if readings else math.nan


def conditions(records: Sequence[Record]) -> dict[str, set[str]]:
    """What the records say of the conditions that they were made under: name → all values."""
    values: dict[str, set[str]] = {}
    for record in records:
        environment = record.environment
        gpu = environment.gpu or {}
        conditions = {
            "machine": record.machine,
            "GPU": gpu.get("name", "none"),
            "driver": gpu.get("driver", "none"),
            "commit": environment.git or "unknown",
            "Python": environment.python or "unknown",
            **{f"package {name}": version for name, version in environment.packages.items()},
            **{f"protocol {name}": value for name, value in record.protocol.items() if name != "graph"},
        }
        for name, value in conditions.items():
            values.setdefault(name, set()).add(str(value))
    values["rounds"] = {str(count) for count in Counter(record.case.path for record in records).values()}
    return values
