"""What `make reference` runs: docs/reference-{gpu}.md, and README's table, out of the bundles in studies/reference/.

Each bundle of studies/reference/{gpu}/ is unpacked to build/reference/{gpu}/{bundle} and reported anew, so that the
pages say what this version of the code makes of the measured files.

`make reference BUNDLE=verify.bundle.zip` first keeps what `make verify` made on another box as
studies/reference/{gpu}/verify.zip: its page and its row in README's table of boxes follow.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from inferprof import documents, report
from inferprof.documents import Environment
from inferprof.errors import UserError
from inferprof.files import read_json
from inferprof.report.common import name_of
from inferprof.report.model import NOT_MEASURED
from inferprof.report.numbers import significant
from inferprof.tables.limits.waterfall import GPU_PARTS
from inferprof.tables.records import CASE_KEY, rows_of
from inferprof.tables.roofs import NO_GPU, gpu_in_use

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = [path for path in sorted(Path(__file__).parent.iterdir()) if path.is_dir() and path.name != "__pycache__"]
HEAD = """# Reference: {gpu}

Made by `make reference` out of the bundles in [studies/reference/{folder}](../studies/reference/{folder}), which
hold every sample that was taken. Change the bundles, not this page. `inferprof unbundle BUNDLE --out FOLDER
--report` unpacks one and writes its whole report.
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
TRIALS = ("model", "shape", "case", "tried", "predicted %", "measured %", "interval", "verdict")
FIXES = ("model", "shape", "case", "fix", "before ms", "after ms", "predicted ms", "achieved ms", "judged")
_DIVIDED = {"model": "model", "precision": "precision", "variant": "variant", "divided": "divided"}
SCALING: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "scaling": (
        "Divided over several GPUs beside one, medians in ms",
        {
            **{**_DIVIDED, "tokens": "tokens", "one": "alone_ms", "several": "ms", "speed-up": "speed_up"},
            **{"fitted": "model_ms", "off %": "error_percent"},
            **{"by links": "links_ms", "off % ": "links_error_percent"},
        },
    ),
    "scaling_models": (
        "The model T(n) = T(1) / n + a + b · tokens ([ranks.md](ranks.md)), and from how many tokens more GPUs pay",
        {
            **{**_DIVIDED, "against": "alone", "pays from": "pays_from", "a µs": "a_us", "b ns": "b_ns"},
            "off by up to %": "residual_percent",
        },
    ),
    "scaling_predicted": (
        "Predicted by it, not measured",
        {
            **{"model": "model", "shape": "shape", "divided": "divided", "from GPUs": "from_ranks"},
            **{"ms": "low_ms", "to": "high_ms", "speed-up": "speed_up_low", "to ": "speed_up_high"},
        },
    ),
    "waterfall_gpus": (
        "Where `device` goes on each GPU, % of its median",
        {
            **{"model": "model", "shape": "shape", "variant": "variant", "GPU": "gpu", "ms": "device_ms"},
            **{part: f"{part}_percent" for part in GPU_PARTS},
        },
    ),
}
"""Table of the report → its title here, and heading → column of it."""
README_GPU, README_BUNDLE = "h200", "baseline"
README_MARKS = ("<!-- the table that `make reference` writes -->", "<!-- the end of that table -->")
README_COLUMNS = {
    "ort_cuda/default": "ORT CUDA",
    "ort_cuda/graph": "ORT CUDA graph",
    "torch_eager/default": "torch eager",
    "torch_compile/default": "torch.compile",
}
README_WIDE = 10
"""%: half widths above this are in the table."""
PACKAGES = ("onnxruntime-gpu", "torch", "tensorrt")
"""Whose versions are named where a bundle was measured with them."""
VERIFY = "`make verify` on this machine (docs/new-gpu.md):\n"
VERIFIED = "verify"
"""The study of a bundle of `make verify`, and the name that it is kept under."""
BOX_MARKS = ("<!-- the boxes that `make reference` writes -->", "<!-- the end of the boxes -->")
BOXES = ("box", "driver", "when", "rows of `make verify`", "each of them")


def document(folder: Path, work: Path) -> str:
    """The page of one GPU: its notes.md, and a part for each bundle. Reports are left in `work`."""
    notes = folder / "notes.md"
    said = [notes.read_text("utf-8")] if notes.exists() else []
    parts = {work / bundle.stem: _part(bundle, work / bundle.stem) for bundle in sorted(folder.glob("*.zip"))}
    gpus = [gpu_in_use(environment) for out in parts for environment in _environments(out)]
    title = next((gpu.name.removeprefix("NVIDIA ") for gpu in gpus if gpu), folder.name)
    return "\n".join([HEAD.format(gpu=title, folder=folder.name), *said, *parts.values()])


def _part(bundle: Path, out: Path) -> str:
    """A heading, what was measured with what, and the table of one bundle."""
    shutil.rmtree(out, ignore_errors=True)
    facts = report.write_bundle(bundle, out)
    table = out / "reports" / facts.study / "csv"
    installed = {name: facts.packages.get(name) for name in PACKAGES}
    versions = ", ".join(f"{name} {version}" for name, version in installed.items() if isinstance(version, str))
    measured = f"{facts.machine}, {versions}, {(facts.last_measured or '')[:10]}; {bundle.name}."
    heading = f"## {facts.study}\n\n{measured}\n"
    verified = out / "verify.txt"
    if verified.exists():
        boxes = [_facts(environment) for environment in _environments(out)]
        return "\n".join([heading, *boxes, VERIFY, f"```\n{verified.read_text('utf-8').strip()}\n```", ""])
    parts = (part(table) for part in (_scaling, _fixes, _trials, _verdicts))
    return "\n".join([heading, *_table(_rows(table)), NOTE, *itertools.chain.from_iterable(parts), ""])


def _environments(out: Path) -> list[Environment]:
    """What the machines of an unpacked bundle are; none where the probe failed."""
    return [documents.read(path, "environment") for path in sorted(out.glob("*/environment.json"))]


def _facts(environment: Environment) -> str:
    """A line on what decides what a box can do."""
    gpu = gpu_in_use(environment) or NO_GPU
    parts = {
        "compute capability": gpu.compute_capability,
        "driver": environment.driver.get("version"),
        "CUDA": environment.driver.get("cuda"),
        **environment.tools,
    }
    said = [gpu.name or "no GPU", *(f"{name} {value}" for name, value in parts.items() if isinstance(value, str))]
    memories = {
        "the GPU has the host's memory": gpu.integrated,
        "the GPU reads the host's memory coherently": gpu.host_page_tables,
    }
    said += [text for text, holds in memories.items() if holds is True][:1]
    return f"{', '.join(said)}.\n"


def kept(bundle: Path, reference: Path) -> Path:
    """Keep a bundle of `make verify` as that of its box, in the place of an older one; the box's folder.

    Raises UserError for anything but a whole bundle of that study.
    """
    with tempfile.TemporaryDirectory() as folder:
        facts = report.write_bundle(bundle, Path(folder, "out"))
    if facts.study != VERIFIED:
        raise UserError(f"{bundle} is of the study {facts.study}: give what `make verify` wrote, verify.bundle.zip")
    box = re.sub(r"-sm\d+-.*|-[0-9a-f]{8}$", "", facts.machine)
    (reference / box).mkdir(exist_ok=True)
    shutil.copy(bundle, reference / box / f"{VERIFIED}.zip")
    return reference / box


def boxes(text: str, folders: Iterable[Path], work: Path) -> str:
    """README's text with a row for each box that has a bundle of `make verify`, of what `document` left in `work`."""
    rows = [_box(folder.name, work / folder.name / VERIFIED) for folder in folders]
    return filled(text, BOX_MARKS, markdown_table(BOXES, [row for row in rows if row]))


def _box(name: str, out: Path) -> tuple[str, ...]:
    """Its row; empty where none was sent."""
    path = out / f"{VERIFIED}.json"
    if not path.exists():
        return ()
    verified = read_json(path)
    versions = [environment.driver.get("version") for environment in _environments(out)]
    driver = next((version for version in versions if isinstance(version, str)), NOT_MEASURED)
    counts = Counter(row["outcome"] for row in verified["rows"])
    said = f"{counts['pass']} pass, {counts['fail']} fail, {counts['not here']} not here"
    page = f"[reference-{name}](docs/reference-{name}.md#{VERIFIED})"
    return verified["gpu"] or "no GPU", driver, verified["started"][:10], said, page


def readme(text: str, work: Path) -> str:
    """README's text with its table made anew, from the report that `document` left of README_BUNDLE in `work`."""
    rows = _rows(work / README_BUNDLE / "reports" / README_BUNDLE / "csv")
    rows["column"] = rows["backend"] + "/" + rows["variant"]
    cells = []
    for key, own in rows.groupby(["model", "shape", "precision"], sort=False):
        model, shape, precision = map(str, key)
        by_column = {row["column"]: row for row in rows_of(own)}
        measured = [_readme_cell(by_column.get(column)) for column in README_COLUMNS]
        cells.append((model, shape.split("_")[0].removeprefix("b"), precision, *measured))
    return filled(text, README_MARKS, markdown_table(("model", "batch", "format", *README_COLUMNS.values()), cells))


def _readme_cell(row: Mapping[str, Any] | None) -> str:
    """`device / end_to_end` in ms; with ± where its interval is wider than README_WIDE or not known."""
    return NOT_MEASURED if row is None else " / ".join(_doubted(row, suffix) for suffix in ("_device", ""))


def _doubted(row: Mapping[str, Any], suffix: str) -> str:
    """A median with the half width of its interval where that is wide."""
    median, interval = _cell(row[f"median_ms{suffix}"]), row[f"interval{suffix}"]
    if pd.isna(interval):
        return f"{median} ±?"
    return f"{median} ±{interval}" if float(interval.removesuffix(" %")) > README_WIDE else median


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
    lines = _head(COLUMNS)
    for row in rows_of(rows):
        measured = [_cell(row.get(column)) for column in CELLS]
        lines.append(_line([row["model"], row["shape"], name_of(row), *measured]))
    return lines


def _scaling(table: Path) -> list[str]:
    """What several GPUs gained at each size, the model of that, and what it says of more of them."""
    lines = []
    for name, (title, columns) in SCALING.items():
        if (path := table / f"{name}.csv").exists():
            lines += [f"{title}:\n", *_head([*columns])]
            lines += [
                _line(_count(row.get(column)) for column in columns.values()) for row in rows_of(pd.read_csv(path))
            ]
            lines.append("")
    return lines


def _count(value: float | str | None) -> str:
    return f"{value:,}" if isinstance(value, int) else _cell(value)


def _fixes(table: Path) -> list[str]:
    """What a variant that acts on a finding was predicted to gain, and what it gained; only where both are known."""
    path = table / "fixes.csv"
    rows = rows_of(pd.read_csv(path).dropna(subset="judged")) if path.exists() else []
    if not rows:
        return []
    lines = ["Acted on, predicted and achieved, by end_to_end:\n", *_head(FIXES)]
    for row in rows:
        predicted = f"{_cell(row['predicted_low_ms'])} to {_cell(row['predicted_high_ms'])}"
        measured = [_cell(row["before_ms"]), _cell(row["after_ms"]), predicted, _cell(row["achieved_ms"])]
        lines.append(_line([row["model"], row["shape"], name_of(row), f"`{row['fix']}`", *measured, row["judged"]]))
    return [*lines, ""]


def _trials(table: Path) -> list[str]:
    """Batches whose gain the advisor predicted and that were measured too: per item on the device."""
    path = table / "tile_advice_tried.csv"
    if not path.exists():
        return []
    rows = pd.read_csv(path).dropna(subset=["predicted_percent", "verdict"])
    lines = ["Suggested for its tiles, and tried:\n", *_head(TRIALS)] if len(rows) else []
    for row in rows_of(rows):
        measured = [_cell(row["predicted_percent"]), _cell(row["measured_percent"])]
        known = not pd.isna(row["low_percent"])
        interval = f"{_cell(row['low_percent'])} to {_cell(row['high_percent'])}" if known else NOT_MEASURED
        named = [row["model"], row["shape"], name_of(row), row["suggested_shape"]]
        lines.append(_line([*named, *measured, interval, row["verdict"]]))
    return [*lines, ""] if lines else []


def _verdicts(table: Path) -> list[str]:
    """What holds the fastest case of each model and shape back, a line each; nothing where all are in doubt."""
    if not (table / "fastest.csv").exists():
        return []
    verdicts = pd.read_csv(table / "verdicts.csv")
    verdicts["case"] = verdicts.apply(name_of, axis=1)
    key = ["model", "shape", "case"]
    fastest = pd.read_csv(table / "fastest.csv")[key].drop_duplicates()
    rows = rows_of(fastest.merge(verdicts, on=key))
    said = [f"- {row['model']} {row['shape']}, {name_of(row)}: {row['sentence']}" for row in rows]
    return ["What holds the fastest case at each shape back:\n", *said]


def filled(text: str, marks: tuple[str, str], lines: Iterable[str]) -> str:
    """A page with these lines in the place of those between two marks."""
    begin, end = marks
    before, _, rest = text.partition(begin)
    return "\n".join([f"{before}{begin}", *lines, f"{end}{rest.partition(end)[2]}"])


def markdown_table(columns: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [*_head(columns), *map(_line, rows)]


def _head(columns: Iterable[str]) -> list[str]:
    """The first lines of a Markdown table."""
    return [_line(columns), _line("---" for _ in columns)]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: float | str | None) -> str:
    if value is None or pd.isna(value):
        return NOT_MEASURED
    return value if isinstance(value, str) else significant(value, 3)


def main(argv: Sequence[str]) -> int:
    """Write the page of each GPU, and README's tables; first keep the bundle that is given. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundle", type=Path, nargs="?", help="verify.bundle.zip of another box")
    bundle = parser.parse_args(argv).bundle
    work = REPOSITORY / "build" / "reference"
    try:
        folders = sorted({*FOLDERS, kept(bundle, Path(__file__).parent)}) if bundle else FOLDERS
    except UserError as error:
        sys.stderr.write(f"make reference: {error}\n")
        return 2
    for folder in folders:
        text = document(folder, work / folder.name)
        path = REPOSITORY / "docs" / f"reference-{folder.name}.md"
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(REPOSITORY)}\n")
    page = REPOSITORY / "README.md"
    text = readme(page.read_text(encoding="utf-8"), work / README_GPU)
    page.write_text(boxes(text, folders, work), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
