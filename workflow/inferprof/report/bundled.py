"""A bundle diagnosed and reported anew: it holds what was measured, not what this version of the code makes of it."""

from __future__ import annotations

from pathlib import Path

from inferprof import bundles, documents, report
from inferprof.diagnosis import run
from inferprof.documents import Bundle
from inferprof.tables import records


def write(bundle: Path, out: Path) -> Bundle:
    """Unpack to `out`, a new folder, diagnose its cases and write its report; the bundle's manifest.

    Raises UserError for anything but a whole bundle that can be reported, and where `out` is there already; there is
    nothing at `out` then.
    """
    with bundles.unpacked(bundle, out) as (results, manifest):
        study, machine = manifest.study, manifest.machine
        folder = results / "reports" / study
        thresholds = documents.thresholds_of(folder)
        for model in records.read_cases(folder / "cases.csv").query("outcome == 'run'")["model"].unique():
            diagnoses = results / machine / "diagnosis" / model
            run.diagnose_model(results, machine, model, thresholds, diagnoses)
        report.write(results, study, machine, manifest.baseline)
    return manifest
