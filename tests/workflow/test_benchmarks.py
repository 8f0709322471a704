"""Every benchmark runs in its smallest size, and prints what it did. How long that takes is not judged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.workflow.conftest import environment

REPOSITORY = Path(__file__).resolve().parents[2]
TOOK = r"[\d.]+ s \([\d.]+ s of CPU time\), \d+ MiB"
LIMITS = r"(within the limits|over a limit: .*)\n"
TOY = str(REPOSITORY / "tests/data/models/toy_block.yaml")
SMALLEST = {
    "best.py": (("--trials", "2"), r'\{\n[\s\S]*"share_of_samples": 0\.0\d+\n[\s\S]*"vanish": 0\.11\d*\n \}\n\}\n'),
    "best_live.py": (
        (TOY, TOY, "b1", "--backend", "torch_eager", "--pairs", "2", "--budget", "0.01"),
        r'\{"pairs": 2, "in_order": "[\w ]+", .*"accepted_0%": [\d.]+, .*"seconds": [\d.]+\}\n',
    ),
    "best_search.py": (
        ("--searches", "1"),
        r'(\{"kind": "(copies|planted|mixed)", .*"rounds": [\d.]+, "combinations": \d+\}\n){3}',
    ),
    "calibration.py": (
        (str(REPOSITORY / "studies/puzzles/weight-only-fp8/bundle.zip"), "--out", "calibration.csv"),
        r"\d+ tries in calibration.csv\n",
    ),
    "classifiers.py": (
        ("direction", "16", "fp8", "samples=8"),
        r"direction: 8 samples, fp32 right [\d.]+% \([\d.]+% to [\d.]+%\)\n"
        r"fp8 \{'samples': 8\}: right [\d.]+% \(.*\), as fp32 [\d.]+% \(.*\)\n",
    ),
    "dag_scale.py": (
        ("--cases", "40"),
        rf"40 cases, 2\d\d jobs: planned in {TOOK}\nmarked as done in {TOOK}\nagain, nothing to be done: {TOOK}\n",
    ),
    "diagnosis.py": (
        ("a CUDA graph between large pageable copies",),
        r"check +labels precision recall\n\(verdict\) +1 +100 % +100 %\n(\w+ +1 +- +-\n){3}"
        r"pageable_copies +1 +100 % +100 %\nall +5 +100 % +100 %\n",
    ),
    "explain_scale.py": (
        ("--megabytes", "5"),
        rf"(\d MB, [\d,]+ kernels, [\d,]+ calls: {TOOK}\n){{2}}{LIMITS}",
    ),
    "report_scale.py": (("--cases", "4"), rf" +4 cases: {TOOK}, page 0\.[01]\d MB\n{LIMITS}"),
    "sensitivity.py": (
        (
            TOY,
            "int8",
            "fp32.onnx",
            "4",
            "samples=4",
            "calibration=max",
        ),
        r"toy_block int8: \d+ units, \d+ passes of 4 samples \(\d each alone, \d left out\) .*; Spearman .*\n",
    ),
    "table.py": (
        ("--only", "timeline", "--small"),
        r" +seconds +MiB +× reference +last: +seconds +× reference\n"
        r"(timeline: [\d,]+ kernels, 0 MB +[\d.]+ +\d+ +[\d.]+ +[-\d.]+ +[-\d.]+\n){2}",
    ),
    "timeline_scale.py": (
        ("--kernels", "2000"),
        rf" +200 kernels, +0 MB: {TOOK}, idle_launch 327881 ns an iteration\n"
        rf" +2,000 kernels, +0 MB: {TOOK}, idle_launch 325981 ns an iteration\n"
        rf"ten times the kernels took [\d.]+ times the CPU time\n{LIMITS}",
    ),
}
"""Benchmark → its arguments in the smallest size, and what it prints then."""


def test_every_benchmark_has_a_smallest_size(repository: Path):
    scripts = {
        path.name for path in (repository / "benchmarks").glob("*.py") if "__main__" in path.read_text("utf-8")
    }
    assert scripts == set(SMALLEST)


@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_runs_in_its_smallest_size(name: str, repository: Path, tmp_path: Path):
    arguments, printed = SMALLEST[name]
    command = [sys.executable, str(repository / "benchmarks" / name), *arguments]
    done = subprocess.run(
        command,
        env=environment() | {"TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.fullmatch(printed, done.stdout), done.stdout + done.stderr
