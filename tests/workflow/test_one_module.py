"""A number format, a runtime, a profiler, a plot: one module. A made-up one of each goes from config to report."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest
from tests.workflow.conftest import Workspace

pytestmark = pytest.mark.slow

MODULE = """
import shutil
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from inferprof.backends import ort
from inferprof.plugins import Backend, Plot, Precision, Profiler, Tolerance
from inferprof.tables import schema

TOOL = Path(__file__).with_name("tool.sh")


def convert(request):
    shutil.copyfile(request.onnx, request.out)
    return {"method": "copied", "not_reproducible": []}


def read(path):
    row = {"level": "run", "name": "made_up", "metric": "report_bytes", "value": float(path.read_text())}
    return schema.conform(pd.DataFrame([row]), "made_up")


FORMAT = Precision(
    "made_up", "Made up", "onnx", convert, Tolerance(20, 10, "of a test"), "float16", "fp16", "fp16"
)
RUNTIME = Backend("made_up", "Made up", "cpu", "onnx", ort.open_cpu, lambda *_: None, {"knob": "of a test"})
WATCHER = Profiler("made_up", ".txt", lambda *_: None, lambda argv, out: ["sh", str(TOOL), str(out), *argv], read)
DRAWING = Plot("made_up", "Made up", "", {"end_to_end_ms": 1}, lambda frame: Figure(), 5, "Latency")
"""
TOOL = 'out=$1; shift; "$@" && echo 42 > "$out"\n'
FORMATS = ["fp32", "made_up"]
CASE = "toy/made_up/made_up/knobbed/b1"


@pytest.fixture
def studied(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results of a study of what one module outside of the package adds."""
    module = tmp_path / "made_up.py"
    module.write_text(MODULE, encoding="utf-8")
    module.with_name("tool.sh").write_text(TOOL, encoding="utf-8")
    monkeypatch.setenv("INFERPROF_PLUGINS", str(module))
    workspace.configure(
        precisions=FORMATS,
        backends=["ort_cpu", "made_up"],
        variants=[{"name": "default"}, {"name": "knobbed", "knob": 1}],
        shapes=["b1"],
        profilers=["made_up"],
        captures="all",
        target=[],
    )
    done = workspace.run("results/REPORT.txt")
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace.folder / "results"


def test_what_one_module_adds_is_converted_measured_watched_and_drawn(studied: Path) -> None:
    report = studied / "reports/toy"
    with (report / "csv/end_to_end.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    keys = ("precision", "backend", "variant")
    measured = {"/".join(row[key] for key in keys) for row in rows if row["median_ms"]}
    of_our_runtime = {f"{precision}/made_up/{name}" for precision in FORMATS for name in ("default", "knobbed")}
    assert measured == {"fp32/ort_cpu/default", "made_up/ort_cpu/default", *of_our_runtime}
    (path,) = studied.glob(f"cpu-*/table/made_up/{CASE}.parquet")
    (value,) = pd.read_parquet(path)["value"]
    assert value == 42.0
    assert [plot.name for plot in report.glob("plots/made_up-*")] == ["made_up-toy.svg"]
    assert (studied / "onnx/toy/made_up.accuracy.json").exists()
