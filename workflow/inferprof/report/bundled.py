"""A bundle diagnosed and reported anew: it holds what was measured, not what this version of the code makes of it."""

from __future__ import annotations

from pathlib import Path

from inferprof import bundles, documents, report
from inferprof.diagnosis import run
from inferprof.documents import Bundle
from inferprof.files import write_document
from inferprof.tables import records


def write(bundle: Path, out: Path, processes: int = 1) -> Bundle:
    """Unpack to `out`, a new folder, diagnose its cases and write its report; the bundle's manifest.

    Raises UserError for anything but a whole bundle that can be reported, and where `out` is there already; there is
    nothing at `out` then.
    """
    with bundles.unpacked(bundle, out) as (results, manifest):
        study, machine = manifest.study, manifest.machine
        folder = results / "reports" / study
        thresholds = documents.thresholds_of(folder)
        models = list(records.read_cases(folder / "cases.csv").query("outcome == 'run'")["model"].unique())
        for part in run.documents_of_models(results, machine, models, thresholds, processes):
            if isinstance(part, Exception):
                raise part
            for case, diagnosis in part:
                write_document(results / machine / "diagnosis" / f"{case.path}.json", "diagnosis", diagnosis)
        report.write(results, study, machine, manifest.baseline, processes)
    return manifest
