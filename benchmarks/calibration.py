"""Calibrates the predicted gains: what each check said in the reference bundles, against what the tried fixes saved.

    python benchmarks/calibration.py [BUNDLE ...] [--out FILE]

Without arguments it takes all committed bundles and writes workflow/inferprof/diagnosis/calibration.csv, in minutes.

It needs no GPU: the bundles are diagnosed anew, by the code in hand.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from inferprof import bundles, documents
from inferprof.diagnosis import calibration, frames, run
from inferprof.findings import Answer
from inferprof.tables import records, tries
from inferprof.tables.records import KEY, Key, Options, options_of

ROOT = Path(__file__).parents[1]
Step = tuple[Key, Key, str, tuple[str, ...]]
"""The case before, the case after, the fix in words, and the checks that advise it."""
BUNDLES = ("studies/reference/*/*.zip", "studies/puzzles/*/bundle.zip")


def rows_of(results: Path, study: str, machine: str) -> Iterator[dict[str, Any]]:
    """A row per try and check that predicted something."""
    planned = records.read_cases(results / "reports" / study / "cases.csv").query("outcome == 'run'")
    for model in planned["model"].unique():
        read = records.read(results, planned[planned["model"] == model])
        if read.empty:
            continue
        measured = frames.peers_of(read)
        answers = {
            (machine, *seen.case.path.parts): run.answers(seen) for seen in frames.of_model(results, machine, model)
        }
        for before, after, fix, checks in steps(options_of(measured.records), answers):
            tried = tries.of_pair(measured, before, after)
            for check in checks:
                bounds = calibration.predicted(answers[before], check)
                if isinstance(bounds, tuple) and tried.achieved_ns is not None and not tried.in_doubt:
                    names = dict(zip(KEY, after, strict=True))
                    yield {
                        "study": study,
                        "case": "/".join(names[key] for key in records.CASE_KEY),
                        "fix": fix,
                        "check": check,
                        "low_ns": round(bounds[0]),
                        "high_ns": round(bounds[1]),
                        "saved_ns": round(tried.achieved_ns),
                        "saved_low_ns": "" if tried.low_ns is None else round(tried.low_ns),
                        "saved_high_ns": "" if tried.high_ns is None else round(tried.high_ns),
                    }


def steps(options: Options, answers: Mapping[Key, Sequence[Answer]]) -> Iterator[Step]:
    """What a report judges, and the change that a finding names, where the study has it."""
    for before, after, fix in tries.pairs(options):
        yield before, after, _words(*fix), tries.FIXES[fix]
    of_place = {(*_place(key), json.dumps(given, sort_keys=True)): key for key, given in options.items()}
    for before, given in answers.items():
        for answer in given:
            for change in (finding.change for finding in answer.findings):
                if change and change.by == "variant" and change.to:
                    wanted = json.dumps({**options[before], **change.to}, sort_keys=True)
                    if after := of_place.get((*_place(before), wanted)):
                        yield before, after, ", ".join(_words(*fix) for fix in change.to.items()), (answer.check,)


def _words(option: str, value: object) -> str:
    return f"{option}: {str(value).lower()}"


def _place(key: Key) -> Key:
    """The case without its variant."""
    return tuple(value for name, value in zip(KEY, key, strict=True) if name != "variant")


def searched(results: Path, study: str, machine: str) -> Iterator[dict[str, Any]]:
    """A row per step of a search that a check predicted and a duel told."""
    for path in sorted((results / machine / "best").glob("*.json")):
        trail: documents.Trail = documents.read(path, "trail", results)
        for step in trail.steps:
            if step.predicted and step.check and step.incumbent_ns and step.gain is not None and step.rounds > 1:
                low, high = step.low or 0.0, step.high or 0.0
                yield {
                    "study": study,
                    "case": f"{trail.model}/{step.candidate}/{trail.shape}",
                    "fix": f"after {step.incumbent}",
                    "check": step.check,
                    "low_ns": round(step.predicted.low_ns),
                    "high_ns": round(step.predicted.high_ns),
                    "saved_ns": round(step.gain * step.incumbent_ns),
                    "saved_low_ns": round(low * step.incumbent_ns),
                    "saved_high_ns": round(high * step.incumbent_ns),
                }


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundles", nargs="*", type=Path, metavar="BUNDLE")
    parser.add_argument("--out", type=Path, default=ROOT / "workflow/inferprof/diagnosis" / calibration.FILE)
    arguments = parser.parse_args()
    every: dict[tuple[str, ...], dict[str, Any]] = {}
    for bundle in arguments.bundles or [path for pattern in BUNDLES for path in sorted(ROOT.glob(pattern))]:
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results"
            manifest = bundles.unbundle(bundle, results)
            of_study = (results, manifest.study, manifest.machine)
            for row in (*rows_of(*of_study), *searched(*of_study)):
                # Studies share records: a try counts once.
                every.setdefault((row["case"], row["check"], str(row["saved_ns"])), row)
    with arguments.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, calibration.COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(every.values())
    print(f"{len(every)} tries in {arguments.out.name}")


if __name__ == "__main__":
    main()
