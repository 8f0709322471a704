"""Scores the checks of the diagnosis on the labelled captures of diagnosis.yaml; needs no GPU.

    python benchmarks/diagnosis.py [NAME...]

Prints precision and recall of each check, and each answer that is not as its label. A check that could not assess
what is labelled as found lowers its recall, for want of what the capture holds. Exit code 1 where an answer
contradicts its label, or where a verdict names another resource first. With names, of these captures alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import lzma
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import yaml

from inferprof import bundles, documents, registry
from inferprof.case import Case
from inferprof.diagnosis import frames, run, verdict
from inferprof.documents.diagnosed import Said
from inferprof.findings import Documents, Frames
from inferprof.tables import records, schema
from inferprof.tables.counters.kernel_faults import FaultName
from inferprof.tables.trace.kernel_compare import ITERATION, as_iterations

REPOSITORY = Path(__file__).resolve().parents[1]
DATA = REPOSITORY / "tests/data"
LABELS = Path(__file__).with_suffix(".yaml")
MACHINE = "h100-80gb-hbm3-sm90-93fb0a94"
MADE_KERNELS = "ncu/faults.csv"
NO_ROWS = pd.DataFrame(columns=list(schema.COLUMNS))
NO_RECORDS = records.frame_of([], [*records.RECORD_KEY, "status", "reason", "record"])


@dataclass(frozen=True)
class Judged:
    """One answer beside its label."""

    name: str
    check: str
    label: Said
    verdict: Said
    reason: str

    @property
    def wrong(self) -> bool:
        """It contradicts the label; what could not be assessed does not."""
        return self.verdict not in (self.label, "not assessed")


@dataclass(frozen=True)
class Score:
    """Counts of one check: labelled found and found, labelled clear and found, labelled found and not found."""

    check: str
    hits: int
    false_alarms: int
    misses: int
    labels: int

    @property
    def precision(self) -> float | None:
        """Of what it found, how much is there; None where it found nothing."""
        found = self.hits + self.false_alarms
        return self.hits / found if found else None

    @property
    def recall(self) -> float | None:
        """Of what is there, how much it found; None where no label says found."""
        there = self.hits + self.misses
        return self.hits / there if there else None


def judge(labelled: Mapping[str, Any]) -> Iterator[Judged]:
    """The answers to what is labelled of one capture or record, and the resource that its verdict names first."""
    known = frames_of(labelled)
    answers = {one.check: one for one in run.answers(known)}
    name = f"{labelled['name']}{' ' + labelled['kernel'] if 'kernel' in labelled else ''}"
    labels: dict[str, Said] = dict.fromkeys(labelled["found"], "found")
    labels |= dict.fromkeys(labelled.get("clear", _other_faults(labelled)), "clear")
    for check, label in labels.items():
        given = answers[check]
        why = given.reason or "; ".join(finding.reason for finding in given.findings)
        yield Judged(name, check, label, given.verdict, why)
    if "first" in labelled:
        named = [group.resource for group in verdict.of_case(known, list(answers.values())).groups]
        right = named[: len(labelled["first"])] == labelled["first"]
        yield Judged(name, "(verdict)", "found", "found" if right else "clear", f"names {', '.join(named)}")


def frames_of(labelled: Mapping[str, Any]) -> Frames:
    """What is known of one labelled case: captures, a bare run's record, or both; a made kernel; a bundle's case."""
    if "bundle" in labelled:
        with bundles.opened(REPOSITORY / labelled["bundle"]) as folder:
            machine = bundles.read_manifest(REPOSITORY / labelled["bundle"]).machine
            return frames.load(folder, machine, Case.from_path(labelled["case"]))
    case = Case.from_path(labelled.get("record") or labelled.get("case") or "made/fp32/cuda/default/b1")
    results, found = DATA / "records", NO_RECORDS
    if "record" in labelled:
        found = records.read(results, records.of_model(results, MACHINE, case.model))
    captures = labelled.get("captures", {"ncu": MADE_KERNELS} if "kernel" in labelled else {})
    tables = [_read(tool, path) for tool, path in captures.items()]
    table = as_iterations(pd.concat([NO_ROWS, *tables]).astype(schema.COLUMNS), labelled.get("iteration", ITERATION))
    if "kernel" in labelled:
        table = table[table["name"] == labelled["kernel"]]
    rows = schema.of_case(table, MACHINE, case)
    known = frames.documents_of(results, MACHINE, case) if "record" in labelled else Documents()
    if "cost" in labelled:
        known = dataclasses.replace(known, cost=documents.read(DATA / labelled["cost"], "cost"))
    return frames.of_tables(MACHINE, case, frames.peers_of(found), rows, known)


def scores(judged: list[Judged]) -> list[Score]:
    """One score per check with a label, by name."""
    return [
        Score(
            check=check,
            hits=sum((one.label, one.verdict) == ("found", "found") for one in own),
            false_alarms=sum((one.label, one.verdict) == ("clear", "found") for one in own),
            misses=sum(one.label == "found" != one.verdict for one in own),
            labels=len(own),
        )
        for check in sorted({one.check for one in judged})
        for own in [[one for one in judged if one.check == check]]
    ]


def _other_faults(labelled: Mapping[str, Any]) -> list[str]:
    """A made kernel has no fault but its own."""
    return [fault for fault in get_args(FaultName) if "kernel" in labelled and fault not in labelled["found"]]


def _read(tool: str, path: str) -> pd.DataFrame:
    """A capture's rows, unpacked first where it is an .xz."""
    source = DATA / path
    if source.suffix != ".xz":
        return registry.profilers()[tool].read(source)
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / source.stem
        unpacked.write_bytes(lzma.decompress(source.read_bytes()))
        return registry.profilers()[tool].read(unpacked)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def main() -> int:
    """Print the scores, and what is not as labelled."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a name in diagnosis.yaml")
    chosen = set(parser.parse_args().names)
    labels = yaml.safe_load(LABELS.read_text(encoding="utf-8"))
    if missing := chosen - {labelled["name"] for labelled in labels}:
        parser.error(f"nothing in {LABELS.name} is named {', '.join(sorted(missing))}")
    judged = [one for labelled in labels if not chosen or labelled["name"] in chosen for one in judge(labelled)]
    print(f"{'check':22} {'labels':>6} {'precision':>9} {'recall':>6}")
    for score in scores(judged):
        print(f"{score.check:22} {score.labels:6} {_percent(score.precision):>9} {_percent(score.recall):>6}")
    total = dataclasses.replace(scores([dataclasses.replace(one, check="") for one in judged])[0], check="all")
    print(f"{total.check:22} {total.labels:6} {_percent(total.precision):>9} {_percent(total.recall):>6}")
    for one in judged:
        if one.label != one.verdict:
            print(f"{one.name}: {one.check} is {one.verdict}, labelled {one.label}: {one.reason}")
    return int(any(one.wrong for one in judged))


if __name__ == "__main__":
    sys.exit(main())
