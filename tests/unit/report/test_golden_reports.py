"""The wording of reports: whole ones, byte for byte. `pytest tests/unit/report/test_golden_reports.py
--rewrite-goldens` writes them anew, and the diff shows what changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.report.conftest import Results

from inferprof import bundles, report

GOLDEN = Path(__file__).parents[2] / "data/golden"
BUNDLE = Path(__file__).parents[3] / "studies/puzzles/weight-only-fp8/bundle.zip"


@pytest.fixture
def agrees(pytestconfig: pytest.Config, tmp_path: Path):
    """Compares a report with the golden one of a name, or makes it that."""

    def compare(written: Path, name: str) -> None:
        text = written.read_text(encoding="utf-8").replace(str(tmp_path), "TMP")
        if pytestconfig.getoption("--rewrite-goldens"):
            (GOLDEN / name).write_text(text, encoding="utf-8")
        assert text == (GOLDEN / name).read_text(encoding="utf-8"), "was it meant? pytest --rewrite-goldens"

    return compare


def test_a_study_on_a_cpu_with_refused_and_failed_cases(written_cpu: Path, agrees) -> None:
    agrees(written_cpu / "REPORT.txt", "cpu.txt")


def test_a_study_on_a_gpu_out_of_its_bundle(tmp_path: Path, agrees) -> None:
    manifest = bundles.unbundle(BUNDLE, tmp_path / "results")
    study, machine, baseline = manifest.study, manifest.machine, manifest.baseline
    agrees(report.write(tmp_path / "results", study, machine, baseline), "weight-only-fp8.txt")


def test_a_study_that_broke_in_part(gpu_study: Results, agrees) -> None:
    gpu_study.broken("vit_tiny/fp32/torch_eager/default/b64")
    gpu_study.write("log/onnx/vit_tiny/fp32.log", "out of disk\n")
    gpu_study.plan()
    written = report.write_partial(gpu_study.root, gpu_study.study, gpu_study.machine, "fp32/ort_cuda/default")
    agrees(written, "partial.txt")
