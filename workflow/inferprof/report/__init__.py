"""The report of a study: REPORT.txt, REPORT.html, plots/, traces/ and csv/ from what the results folder holds."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import gc
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from inferprof import bundles, escape, spread
from inferprof.diagnosis import run
from inferprof.documents import Bundle, Diagnosis, thresholds_of
from inferprof.errors import UserError
from inferprof.files import make_folder, write_document, write_text, written_whole
from inferprof.grouping import grouped
from inferprof.plots import render
from inferprof.report import compose, evidence, figures, html, interactive, txt
from inferprof.report.documents import Document
from inferprof.report.model import Cell, Report, Table
from inferprof.tables import records

WHOLE = "REPORT.txt"
PARTIAL = "REPORT.partial.txt"
ANSWER = "ANSWER.txt"
"""The answers alone, as a terminal shows them last."""
NOW = "now"
"""The name of the report so far that can be asked for at any time."""
GC_THRESHOLD = 100_000
"""New objects between two looks for garbage, 700 by default. Nearly all that a report makes stays until it is
written, and looking in vain took a seventh of the time for 500 cases."""


@contextlib.contextmanager
def _rarely_collected() -> Iterator[None]:
    """Garbage is looked for at GC_THRESHOLD meanwhile."""
    usual = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def read(results: Path, study: str, machine: str, baseline: str | None = None) -> evidence.Evidence:
    """The evidence about the cases of `results/reports/{study}/cases.csv`."""
    return evidence.load(
        results, study, machine, records.read_cases(results / "reports" / study / "cases.csv"), baseline
    )


@_rarely_collected()
def write(
    results: Path,
    study: str,
    machine: str,
    baseline: str | None = None,
    processes: int = 1,
    plots_as: str = render.SVG,
) -> Path:
    """Write the report of `results/reports/{study}/cases.csv` beside it, in at most so many processes: REPORT.txt.

    `baseline` is `precision/backend/variant`, `plots_as` the suffix of the files in plots/: .svg or .png.
    Raises UserError where cases.csv, a record or a table can't be read.
    """
    folder = results / "reports" / study
    study_evidence = read(results, study, machine, baseline)
    _empty(folder / "plots")
    others = min(processes - 1, max(interactive.worth(study_evidence), figures.worth(study_evidence)))
    with spread.over(1 + others) as every:  # which read timelines and draw while this one derives and composes
        page = interactive.begin(study_evidence, folder, every)
        plots = figures.draw(study_evidence, folder / "plots", every, plots_as)
        report = compose.compose(study_evidence)
        written = write_files(compose.with_widgets(compose.with_plots(report, plots()), *page()), folder)
    (folder / PARTIAL).unlink(missing_ok=True)
    return written


@_rarely_collected()
def write_machines(results: Path, study: str, machines: Sequence[str], baseline: str | None = None) -> Path:
    """Write the report of a study on several machines, out of what is in the folder of each, into the one above."""
    folder = results / "reports" / study
    of_machines = [
        evidence.load(
            results, f"{study}/{machine}", machine, records.read_cases(folder / machine / "cases.csv"), baseline
        )
        for machine in machines
    ]
    return write_files(compose.compose_machines(study, of_machines), folder)


def write_bundle(bundle: Path, out: Path, processes: int = 1) -> Bundle:
    """Unpack to `out`, a new folder, diagnose its cases and write its report; the bundle's manifest.

    Raises UserError for anything but a whole bundle that can be reported, and where `out` is there already; there is
    nothing at `out` then.
    """
    with bundles.unpacked(bundle, out) as (results, manifest):
        study, machine = manifest.study, manifest.machine
        folder = results / "reports" / study
        thresholds = thresholds_of(folder)
        models = list(records.read_cases(folder / "cases.csv").query("outcome == 'run'")["model"].unique())
        for part in run.documents_of_models(results, machine, models, thresholds, processes):
            if isinstance(part, Exception):
                raise part
            for case, diagnosis in part:
                write_document(results / machine / "diagnosis" / f"{case.path}.json", "diagnosis", diagnosis)
        write(results, study, machine, manifest.baseline, processes)
    return manifest


def write_files(report: Report, folder: Path) -> Path:
    """REPORT.txt, REPORT.html, ANSWER.txt and csv/ of a report; returns the first."""
    _write_details(report, folder)
    write_text(folder / ANSWER, txt.answers(report))
    write_text(folder / WHOLE, txt.render(report))
    return folder / WHOLE


def _write_details(report: Report, folder: Path) -> None:
    """REPORT.html and csv/, which every text names."""
    _empty(folder / "csv")
    for table in report.tables:
        write_csv(table, folder / "csv" / f"{table.name}.csv")
    write_text(folder / "REPORT.html", html.render(report))


def _write_before_whole(report: Report, path: Path, most: int | None = txt.LINES) -> Path:
    """The text into this file, and what it names beside it, unless a whole report has that."""
    write_text(path, txt.render(report, most))
    if not path.with_name(WHOLE).exists():
        _write_details(report, path.parent)
    return path


def write_so_far(
    results: Path, study: str, machine: str, baseline: str | None, name: str, processes: int = 1
) -> Path:
    """Write REPORT.{name}.txt of the cases that are measured while others are still to come, and which those are.

    It waits for nothing: without cases.csv the cases with a record are known. NOW of a study that is done is its
    REPORT.txt.
    """
    folder = results / "reports" / study
    planned, whole = folder / "cases.csv", folder / WHOLE
    begun = planned.stat().st_mtime_ns if planned.exists() else 0
    if name == NOW and whole.exists() and whole.stat().st_mtime_ns >= begun:
        return whole
    cases = records.read_cases(planned) if begun else records.of_model(results, machine, "*")
    done = records.read(results, cases)[records.KEY].drop_duplicates().assign(done=True)
    waits = (cases.merge(done, on=records.KEY, how="left")["done"].isna() & (cases["outcome"] == "run")).to_numpy()
    study_evidence = evidence.load(results, study, machine, cases[~waits], baseline)
    study_evidence = dataclasses.replace(
        study_evidence, diagnoses=_diagnosed(study_evidence, processes), waiting=cases[waits]
    )
    report = compose.compose_so_far(study_evidence)
    write_text(folder / ANSWER, txt.answers(report))
    return _write_before_whole(report, folder / f"REPORT.{name}.txt")


def write_partial(results: Path, study: str, machine: str, baseline: str | None = None) -> Path:
    """Write REPORT.partial.txt of what exists after jobs broke: never a REPORT.txt, which would look complete."""
    folder = results / "reports" / study
    planned = folder / "cases.csv"
    cases = records.read_cases(planned) if planned.exists() else records.of_model(results, machine, "*")
    study_evidence = evidence.load(results, study, machine, cases, baseline)
    study_evidence = dataclasses.replace(
        study_evidence, diagnoses={**_diagnosed(study_evidence), **study_evidence.diagnoses}
    )
    report = compose.compose_partial(study_evidence, planned.exists())
    return _write_before_whole(report, folder / PARTIAL, most=None)


def _diagnosed(study_evidence: evidence.Evidence, processes: int = 1) -> dict[tuple[str, ...], Document[Diagnosis]]:
    """The diagnoses of models that no job made, since the record of one of their cases is missing."""
    results, machine = study_evidence.results, study_evidence.machine
    lacking = sorted(set(study_evidence.records["model"]) - {key[1] for key in study_evidence.diagnoses})
    thresholds = thresholds_of(results / "reports" / study_evidence.study)
    made: dict[tuple[str, ...], Document[Diagnosis]] = {}
    for part in run.documents_of_models(results, machine, lacking, thresholds, processes):
        if isinstance(part, UserError):  # a damaged document, which the report names
            continue
        if isinstance(part, Exception):
            raise part
        for case, content in part:
            diagnosis = msgspec.convert(content, Diagnosis)
            made[(machine, *case.path.parts)] = Document(f"{machine}/diagnosis/{case}.json", diagnosis)
    return made


def _empty(folder: Path) -> None:
    """Make a folder without the files of an earlier report: what is no longer drawn must not look current."""
    if folder.is_symlink():
        raise UserError(f"{folder} links to another folder, whose files would be removed: move the link away")
    make_folder(folder)
    for path in folder.iterdir():
        path.unlink()


def write_csv(table: Table, path: Path) -> None:
    """Write a table in full precision. What is missing is empty, with its reason in the last column."""
    with written_whole(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*(escape.cell(column.key) for column in table.columns), "not_measured"])
        for row in table.rows:
            values = ["" if cell.value is None else cell.value for cell in row]
            writer.writerow([escape.cell(value) for value in [*values, _reasons(table, row)]])


def _reasons(table: Table, row: tuple[Cell, ...]) -> str:
    """`p99_ms, p99_9_ms: not measured: fewer than 299 samples`: what is missing in a row, by reason."""
    lacking = grouped(
        (cell.missing, column.key) for column, cell in zip(table.columns, row, strict=True) if cell.missing
    )
    return "; ".join(f"{', '.join(keys)}: {reason}" for reason, keys in lacking.items())
