"""docs/reference-{gpu}.md out of the bundles in studies/reference/{gpu}/: what `make reference` runs.

Each bundle is unpacked to build/reference/{gpu}/{bundle} and reported anew, so that the page says what this version
of the code makes of the measured files.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from inferprof.report import bundled
from inferprof.report.numbers import significant
from inferprof.tables.records import CASE_KEY

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = [path for path in sorted(Path(__file__).parent.iterdir()) if path.is_dir() and path.name != "__pycache__"]
HEAD = """# Reference: {gpu}

Made by `make reference` out of the bundles in [studies/reference/{folder}](../studies/reference/{folder}), which
hold every sample that was taken. Change the bundles, not this page. `inferprof unbundle` unpacks one and says how to
write its whole report.
"""
NOTE = """
± is the half width of the 95 % interval of the median; with two rounds it is wide, with one it lacks the spread
between processes. × roof: `device` over the least time that the graph needs on this GPU. items/s: of end_to_end.
× floor: h2d over what the link needs for as many bytes. – is what was not measured; the report says why.
[measurement.md](measurement.md) has the definitions.
"""
COLUMNS = ("model", "shape", "case", "device ms", "±", "× roof", "end_to_end ms", "±", "items/s", "h2d ms", "× floor")
CELLS = (
    *("median_ms_device", "interval_device", "times_roof"),
    *("median_ms", "interval", "items_per_s", "h2d_ms", "h2d_times_floor"),
)
"""The columns of the report's tables behind those of measured numbers."""
DASH = "–"


def document(folder: Path, work: Path) -> str:
    """The page of one GPU: a part for each bundle. Reports are left in `work`."""
    parts = [_part(bundle, work / bundle.name.split(".")[0]) for bundle in sorted(folder.glob("*.zip"))]
    return "\n".join([HEAD.format(gpu=folder.name.upper(), folder=folder.name), *parts])


def _part(bundle: Path, out: Path) -> str:
    """A heading, what was measured with what, and the table of one bundle."""
    facts = bundled.write(bundle, out)
    table = out / "reports" / facts["study"] / "csv"
    versions = ", ".join(f"{name} {facts['packages'][name]}" for name in ("onnxruntime-gpu", "torch"))
    measured = f"{facts['machine']}, {versions}, {facts['last_measured'][:10]}; {bundle.name}."
    heading = f"## {facts['study']}\n\n{measured}\n"
    return "\n".join([heading, *_table(_rows(table)), NOTE, *_verdicts(table), ""])


def _rows(table: Path) -> pd.DataFrame:
    """A row per measured case, in the order of the report, of the report's own tables."""
    rows = pd.read_csv(table / "end_to_end.csv")
    for name in ("device", "roofline", "link_floor"):
        path = table / f"{name}.csv"
        more = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=list(CASE_KEY))
        rows = rows.merge(more, on=list(CASE_KEY), how="left", suffixes=("", f"_{name}"))
    return rows


def _table(rows: pd.DataFrame) -> list[str]:
    """The lines of the Markdown table."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows.to_dict("records"):
        named = [row["model"], row["shape"], f"{row['precision']}/{row['backend']}/{row['variant']}"]
        measured = [DASH if pd.isna(row.get(column)) else _cell(row[column]) for column in CELLS]
        lines.append("| " + " | ".join(named + measured) + " |")
    return lines


def _verdicts(table: Path) -> list[str]:
    """What holds each case back, a line each."""
    rows = pd.read_csv(table / "verdicts.csv").to_dict("records")
    names = [f"{row['model']} {row['shape']}, {row['precision']}/{row['backend']}/{row['variant']}" for row in rows]
    return [f"- {name}: {row['sentence']}" for name, row in zip(names, rows, strict=True)]


def _cell(value: float | str) -> str:
    return value if isinstance(value, str) else significant(value, 3)


def main() -> None:
    """Write the page of each GPU."""
    for folder in FOLDERS:
        text = document(folder, REPOSITORY / "build" / "reference" / folder.name)
        (REPOSITORY / "docs" / f"reference-{folder.name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
