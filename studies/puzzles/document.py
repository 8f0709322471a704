"""studies/puzzles/NAME/SOLUTION.md out of the bundle and the template beside it: what `make puzzles` runs.

A bundle is unpacked to build/puzzles/NAME and reported anew. The template may say of numbers only what is measured:

  manifest        of the bundle: study, machine, packages, last_measured, git
  tables.NAME     the report's csv/NAME.csv as a frame
  diagnoses[CASE] the diagnosis of a case: model/precision/backend/variant/shape
  records[CASE]   its records, a list of one per round
  value(tables.NAME, COLUMN, key=…)   the one value in the row of these keys; None where it was not measured
  row(tables.NAME, key=…)             that row as a mapping; {} where there is none
  rows(tables.NAME, key=…)            all rows of these keys
  answer(CASE, CHECK)                 what a check says of a case: verdict, reason, evidence, findings
  said(CASE, CHECK)                   the same in words, an item of a list per finding
  why(CASE)                           why a case has no measurement, as cases.csv and its records say
  … | number, count, percent, times, milliseconds (of ns), mebibytes (of bytes): `–` where there is none

A line `![caption](NAME.svg)` shows the report's plots/NAME.svg.
What does not exist (a table, a variable, a case) is an error, never an empty place.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from inferprof import report
from inferprof.documents import Bundle
from inferprof.errors import UserError
from inferprof.files import read_json
from inferprof.report import numbers
from inferprof.report.model import NOT_MEASURED
from inferprof.tables.records import CASE_KEY, read_cases

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = [path.parent for path in sorted(Path(__file__).parent.glob("*/study.yaml"))]
BUNDLE, TEMPLATE, SOLUTION = "bundle.zip", "solution.md.j2", "SOLUTION.md"


def document(folder: Path, work: Path) -> str:
    """The solution of one puzzle; its report is left in `work`. Raises UserError for a bundle that is not whole."""
    shutil.rmtree(work, ignore_errors=True)
    manifest = report.write_bundle(folder / BUNDLE, work)
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "number": _dashed(numbers.significant),
        "percent": _dashed(lambda share: numbers.percent(100 * share)),
        "times": _dashed(numbers.ratio),
        "milliseconds": _dashed(numbers.milliseconds),
        "mebibytes": _dashed(numbers.mebibytes),
        "count": _dashed(numbers.count),
    }
    template = environment.from_string((folder / TEMPLATE).read_text(encoding="utf-8"))
    return template.render(manifest=manifest, **_measured(work, manifest)).rstrip() + "\n"


def _measured(results: Path, manifest: Bundle) -> dict[str, Any]:
    """What the template knows of a results folder, beside the manifest."""
    reports = results / "reports" / manifest.study
    machine = results / manifest.machine
    diagnoses = dict(_documents(machine / "diagnosis"))
    records: dict[str, list[Any]] = {}
    for name, record in _documents(machine / "benchmark"):
        records.setdefault(name.rpartition("/")[0], []).append(record)
    outcomes = read_cases(reports / "cases.csv").set_index(list(CASE_KEY))["reason"]

    def answer(case: str, check: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = next(one for one in diagnoses[case]["answers"] if one["check"] == check)
        return found

    def said(case: str, check: str) -> str:
        found = answer(case, check)
        items = [
            f"- `{check}`{', ' * bool(one['subject'])}{one['subject']}: {one['reason']} Do: {one['advice']}"
            for one in found["findings"]
        ]
        return "\n".join(items or [f"- `{check}` {found['verdict']}: {found['reason']}"])

    def why(case: str) -> str:
        failed = [str(record["reason"]) for record in records.get(case, ()) if record["status"] != "ok"]
        return next(iter(failed), str(outcomes[tuple(case.split("/"))]))

    tables = {path.stem: pd.read_csv(path) for path in sorted((reports / "csv").glob("*.csv"))}
    return {
        **{"tables": tables, "diagnoses": diagnoses, "records": records},
        **{"value": value, "row": row, "rows": rows, "answer": answer, "said": said, "why": why},
    }


def _documents(folder: Path) -> Iterator[tuple[str, Any]]:
    """The JSON files below a folder, each with its path there without the suffix."""
    for path in sorted(folder.rglob("*.json")):
        yield path.relative_to(folder).with_suffix("").as_posix(), read_json(path)


def rows(table: pd.DataFrame, **keys: Any) -> list[Mapping[str, Any]]:
    """The rows whose columns have these values, with None for what is missing.

    Raises UserError for a column that the table lacks.
    """
    if lacking := sorted(set(keys) - set(table.columns)):
        raise UserError(f"the table has no column {', '.join(lacking)}; it has {', '.join(table.columns)}")
    found = table[(table[list(keys)] == pd.Series(keys)).all(axis=1)].to_dict("records")
    return [{str(name): None if pd.isna(one) else one for name, one in record.items()} for record in found]


def row(table: pd.DataFrame, **keys: Any) -> Mapping[str, Any]:
    """The one of `rows`; {} where there is none. Raises UserError where there are several."""
    found = rows(table, **keys)
    if len(found) > 1:
        raise UserError(f"{len(found)} rows have {keys}; give more keys")
    return found[0] if found else {}


def value(table: pd.DataFrame, column: str, **keys: Any) -> Any:
    """A cell of `row`; None where it was not measured. Raises UserError as `row` does."""
    if column not in table.columns:
        raise UserError(f"the table has no column {column}; it has {', '.join(table.columns)}")
    return row(table, **keys).get(column)


def _dashed(written: Callable[..., str]) -> Callable[..., str]:
    """A filter that writes a number, and a dash where there is none."""

    def filtered(number: Any, *arguments: Any) -> str:
        missing = number is None or (isinstance(number, float) and math.isnan(number))
        return NOT_MEASURED if missing else written(number, *arguments)

    return filtered


def pictures(text: str) -> list[str]:
    """The files of plots that a page shows: `![caption](NAME.svg)`."""
    return re.findall(r"^!\[[^\]]*\]\(([\w-]+\.svg)\)$", text, re.MULTILINE)


def main() -> None:
    """Write the solution of each puzzle that was measured, and the report's plots that it shows beside it."""
    for folder in FOLDERS:
        if (folder / BUNDLE).exists():
            work = REPOSITORY / "build" / "puzzles" / folder.name
            text = document(folder, work)
            (folder / SOLUTION).write_text(text, encoding="utf-8")
            for name in pictures(text):
                (plot,) = work.glob(f"reports/*/plots/{name}")
                shutil.copyfile(plot, folder / name)


if __name__ == "__main__":
    main()
