"""Each puzzle asks, plans and, once it was measured, is solved by its own bundle."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.facts import naming
from tests.workflow.conftest import Workspace

from inferprof.errors import UserError
from inferprof.machine.hardware import Gpu, Machine
from inferprof.study import plan
from inferprof.yaml_file import read_yaml

REPOSITORY = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(REPOSITORY / "studies/puzzles/document.py"))
MAX_BYTES = 5 * 2**20
MAX_CASES = 40

H100 = Machine(
    Gpu("NVIDIA H100 80GB HBM3", (9, 0), 80 << 30, "GPU-0", "580.1"),
    packages={
        "torch": "2.11.0",
        "torchao": "0.18.0",
        "gemlite": "0.6.0",
        "triton": "3.6.0",
        "onnxruntime-gpu": "1.31.1",
    },
    tools={"nsys": "nsys", "ncu": "ncu"},
)
puzzles = pytest.mark.parametrize("folder", SCRIPT["FOLDERS"], ids=lambda folder: folder.name)


@puzzles
def test_a_puzzle_has_a_question_with_hints_and_a_way_to_its_solution(folder: Path) -> None:
    question = (folder / "README.md").read_text(encoding="utf-8")
    assert question.count("<details>") == question.count("</details>") >= 3
    assert f"--configfile studies/puzzles/{folder.name}/study.yaml" in question
    links = set(re.findall(r"\]\(([^)\s]+)\)", question))
    assert "SOLUTION.md" in links
    local = {link for link in links if "://" not in link} - {"SOLUTION.md"}
    assert sorted(link for link in local if not (folder / link).exists()) == []
    assert (folder / SCRIPT["TEMPLATE"]).exists()


@puzzles
def test_the_solution_of_a_puzzle_agrees_with_its_bundle(folder: Path, tmp_path: Path) -> None:
    if not (folder / SCRIPT["BUNDLE"]).exists():
        assert not (folder / SCRIPT["SOLUTION"]).exists(), "a solution without what was measured"
        pytest.skip(f"{folder.name} was not measured yet: it has no {SCRIPT['BUNDLE']}")
    solution = (folder / SCRIPT["SOLUTION"]).read_text(encoding="utf-8")
    assert solution == SCRIPT["document"](folder, tmp_path / "results"), "run `make puzzles`"
    assert (folder / SCRIPT["BUNDLE"]).stat().st_size <= MAX_BYTES
    assert [name for name in SCRIPT["pictures"](solution) if not (folder / name).exists()] == [], "run `make puzzles`"


@puzzles
def test_a_puzzle_is_a_study_that_runs_on_an_h100(folder: Path) -> None:
    study = plan(read_yaml(folder / "study.yaml"), REPOSITORY / "models", H100)
    assert study.name == folder.name
    assert 0 < len(study.cases()) <= MAX_CASES
    assert {"nsys", "kineto"} <= {profiler for profiler, _ in study.captures()}
    assert study.refused_profilers() == {}


@puzzles
def test_a_puzzle_can_be_planned_on_a_machine_that_has_nothing(folder: Path, tmp_path: Path) -> None:
    assert planned(tmp_path, "--configfile", str(folder / "study.yaml"))["report_in_use"] == 1


def test_a_model_that_is_not_exported_is_measured_without_an_onnx_file(tmp_path: Path) -> None:
    study = REPOSITORY / "studies/puzzles/weight-only-fp8/study.yaml"
    jobs = planned(tmp_path, "--configfile", str(study), "--config", "models=[llama_tiny]", "exclude=[]")
    assert not {"export", "quantize", "audit", "accuracy", "cost"} & set(jobs)
    assert jobs["expect"] == 2
    assert jobs["benchmark"] >= 2


def planned(folder: Path, *arguments: str) -> dict[str, int]:
    """Rule → jobs of a report, in a folder with the repository's models and config."""
    (folder / "models").symlink_to(REPOSITORY / "models")
    (folder / "config.yaml").symlink_to(REPOSITORY / "config.yaml")
    return Workspace(folder, REPOSITORY).jobs(*arguments, "--", "results/REPORT.txt")


TABLE = pd.DataFrame({"case": ["a", "b", "b"], "shape": ["b1", "b1", "b8"], "ms": [1.5, None, 2.0]})


def test_a_number_that_was_not_measured_is_a_dash() -> None:
    value, number = SCRIPT["value"], SCRIPT["_dashed"](str)
    assert number(value(TABLE, "ms", case="a")) == "1.5"
    assert number(value(TABLE, "ms", case="b", shape="b1")) == "–"
    assert number(value(TABLE, "ms", case="c")) == "–"


def test_a_value_of_several_rows_is_nobodys() -> None:
    with pytest.raises(UserError, match="2 rows have"):
        SCRIPT["value"](TABLE, "ms", case="b")


def test_a_column_that_is_not_there_is_an_error_not_a_dash() -> None:
    with pytest.raises(UserError, match=naming("no", "msec", "case", "shape", "ms")):
        SCRIPT["value"](TABLE, "msec", case="a")
    with pytest.raises(UserError, match="no column batch"):
        SCRIPT["value"](TABLE, "ms", batch="a")
