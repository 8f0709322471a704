"""A bundle diagnosed and reported anew: it holds what was measured, not what this version of the code makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inferprof import bundles, report
from inferprof.diagnosis import run
from inferprof.files import read_document
from inferprof.tables import records


def write(bundle: Path, out: Path) -> Mapping[str, Any]:
    """Unpack to `out`, a new folder, diagnose its cases and write its report; the bundle's manifest.

    Raises UserError for anything but a whole bundle, and where `out` is there already.
    """
    manifest = bundles.unbundle(bundle, out)
    study, machine = manifest["study"], manifest["machine"]
    folder = out / "reports" / study
    config = read_document(folder / "config.json", "config") if (folder / "config.json").exists() else {}
    for model in records.read_cases(folder / "cases.csv").query("outcome == 'run'")["model"].unique():
        run.diagnose_model(out, machine, model, config.get("thresholds", {}), out / machine / "diagnosis" / model)
    report.write(out, study, machine, manifest["baseline"])
    return manifest
