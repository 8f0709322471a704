"""What a comparison reads of each side: records, how accurate the graphs are, and how fast the host was."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from inferprof import bundles, documents, registry, stats
from inferprof.case import Case
from inferprof.documents import Accuracy
from inferprof.documents.record import Record
from inferprof.errors import UserError
from inferprof.tables.records import CASE_KEY, of_folder, read_cases, rows_of


@dataclass(frozen=True)
class Side:
    """A results folder, or a bundle or tar archive of one. accuracy: by `model/precision`."""

    records: Sequence[Record]
    accuracy: Mapping[str, Accuracy]
    unlisted: Sequence[str] = ()
    """Cases with a record that none of its studies has: earlier ones left them, or other configs."""


@dataclass(frozen=True)
class Fidelity:
    """The accuracy of B's graphs beside A's. lost: (graph, what B's outputs are) of those that B's accuracy fails and
    A's does not."""

    compared: int = 0
    lost: tuple[tuple[str, str], ...] = ()


NONE_COMPARED: Final = Fidelity()


def read(path: Path) -> Side:
    """Both sides are read by this. Raises UserError where there is no record, or a file of another kind."""
    with bundles.opened(path) as folder:
        folders = sorted(folder.glob("**/benchmark"))
        records: list[Record] = [record for benchmark in folders for record in of_folder(benchmark)]
        if not records:
            raise UserError(
                f"{path} holds no benchmark records; give a results folder, results/MACHINE, a bundle or a tar"
            )
        of_round = Counter((record.machine, record.case.path, record.round) for record in records)
        if twice := [key for key, count in of_round.items() if count > 1]:
            machine, case, number = twice[0]
            raise UserError(f"{path} holds round {number} of {case} on {machine} twice: move the copied folder away")
        of_machine = (folder / "benchmark").is_dir()
        root = folder.parent if of_machine else folder
        pattern = "onnx/*/*.accuracy.json" if of_machine else "**/onnx/*/*.accuracy.json"
        files = {f"{file.parent.name}/{file.name.split('.')[0]}": file for file in sorted(root.glob(pattern))}
        accuracy: dict[str, Accuracy] = {graph: documents.read(file, "accuracy") for graph, file in files.items()}
        planned = {case for file in root.glob("**/reports/**/cases.csv") for case in _cases(file)}
        measured = {record.case.path for record in records}
        return Side(records, accuracy, sorted(measured - planned) if planned else ())


def fidelity(a: Side, b: Side) -> Fidelity:
    """Of the graphs whose accuracy both sides have."""
    both = [graph for graph in a.accuracy if graph in b.accuracy]
    judged = [g for g in both if "not measured" not in (a.accuracy[g].outcome, b.accuracy[g].outcome)]
    lost = [g for g in judged if b.accuracy[g].outcome == "fail" and a.accuracy[g].outcome != "fail"]
    return Fidelity(len(judged), tuple((graph, str(b.accuracy[graph].reason)) for graph in lost))


def _cases(file: Path) -> set[str]:
    return {str(Case(*(row[key] for key in CASE_KEY))) for row in rows_of(read_cases(file))}


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
