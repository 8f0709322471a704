"""What the user can mend is one line and exit code 2, before anything runs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.facts import mentions
from tests.workflow.conftest import TOY_YAML, Workspace, refusal

BAD_CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"models": ["nope"]}, "unknown models nope; known: toy"),
    ({"precisions": ["fp7"]}, "unknown precisions fp7; known: "),
    ({"backends": ["ort_gpu"]}, "unknown backends ort_gpu; known: "),
    ({"profilers": ["nvprof"]}, "unknown profilers nvprof; known: "),
    ({"modles": ["toy"]}, "config: top level: Additional properties are not allowed ('modles' was unexpected)"),
    ({"modles": ["toy"]}, "did you mean models?"),
    ({"models": ["tooy"]}, "unknown models tooy; known: toy; did you mean toy?"),
    ({"models": "toy"}, "config: models: 'toy' is not a list: write [toy]"),
    ({"machine": "onnx"}, "config: machine: 'onnx' does not match"),
    ({"models": []}, "config: models: [] should be non-empty"),
    ({"shapes": ["b0"]}, "shape 'b0' is not a shape"),
    ({"shapes": ["b1_s128"]}, "b1_s128 fits no model of the study"),
    ({"baseline": "fp32/ort_cpu/nope"}, "unknown variants in baseline: nope; known: default"),
    ({"precisions": [{"name": "int8", "calibratoin": "max"}]}, "unknown options of precision int8: calibratoin"),
    ({"variants": [{"name": "fast", "go_faster": True}]}, "unknown options of variant fast: go_faster"),
]


@pytest.mark.parametrize(("keys", "message"), BAD_CONFIGS, ids=[message[:40] for _, message in BAD_CONFIGS])
def test_a_bad_config_is_one_line_and_exit_code_2(workspace: Workspace, keys: dict[str, Any], message: str) -> None:
    workspace.configure(**keys)
    assert message in refusal(workspace.ask())


def test_what_the_command_line_gives_is_read_as_a_file_is(workspace: Workspace) -> None:
    workspace.configure(repeat="all")
    once = workspace.jobs("--config", "protocol={cpu_rounds: 1}")["benchmark"]
    assert workspace.jobs("--config", "protocol={cpu_rounds: 2}")["benchmark"] == 2 * once


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        ("engins", "engines"),
        ("benchmark", "benchmarks"),
        ("results/onnx/tooy/fp32.onnx", "toy"),
        ("results/onnx/toy/fp23.onnx", "fp32"),
    ],
)
def test_a_target_that_nothing_makes_is_one_line_and_exit_code_2(
    workspace: Workspace, target: str, meant: str
) -> None:
    said = refusal(workspace.ask("--dry-run", target))
    assert target in said and said.endswith(f"; did you mean {meant}?")


def test_any_rule_can_be_forced_and_be_the_last(workspace: Workspace) -> None:
    assert workspace.jobs("--forcerun", "export", "--until", "export")["export"] == 1


def test_a_model_without_inputs_is_one_line_and_exit_code_2(workspace: Workspace) -> None:
    content = {key: value for key, value in TOY_YAML.items() if key != "inputs"}
    (workspace.folder / "models" / "toy.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    assert mentions(refusal(workspace.ask()), "'inputs'", "required")


def test_a_truncated_onnx_is_one_line_and_exit_code_2(workspace: Workspace) -> None:
    (workspace.folder / "models" / "cut.onnx").write_bytes(b"\x08\x08\x12\xff")
    workspace.configure(models=["cut"])
    assert "cut.onnx" in refusal(workspace.ask())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.onnx", b"\x08\x08\x12\xff"),
        ("cut.yaml", b"source: onnx\ninputs: [\n"),
        ("cut.yaml", b"source: python\npython: toy_module:build\n"),
        ("cut.yaml", b"source: onnx\nonnx: none.onnx\ninputs: [{name: x, dtype: float32, dims: [b]}]\n"),
    ],
    ids=["cut", "no YAML", "no inputs", "no file"],
)
def test_a_broken_model_beside_others_costs_itself_alone(workspace: Workspace, name: str, content: bytes) -> None:
    alone = workspace.jobs("results/REPORT.txt")
    (workspace.folder / "models" / name).write_bytes(content)
    workspace.configure(models=["toy", "cut"])
    assert workspace.jobs("results/REPORT.txt") == alone
    assert name in refusal(workspace.ask("--dry-run", "results/onnx/cut/fp32.onnx"))
    assert workspace.run("results/reports/toy/cases.csv").returncode == 0
    with (workspace.folder / "results/reports/toy/cases.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    own = [row for row in rows if row["model"] == "cut" and row["backend"] == "ort_cpu"]
    assert {(row["precision"], row["shape"]) for row in own} == {
        (precision, shape) for precision in ("fp32", "fp16", "int8") for shape in ("b1", "b4")
    }
    assert all(row["outcome"] == "failed" and name in row["reason"] for row in own)
    assert {row["reason"] for row in rows if row["model"] == "cut" and row["backend"] == "ort_cuda"} == {"no GPU"}


def test_two_models_of_one_name_are_one_line_and_exit_code_2(workspace: Workspace) -> None:
    (workspace.folder / "models" / "toy.onnx").write_bytes(b"")
    assert "toy" in refusal(workspace.ask())


def test_a_symbol_without_a_size_is_one_line_and_exit_code_2(workspace: Workspace) -> None:
    inputs = [{"name": "x", "dtype": "float32", "dims": ["b", "s"]}]
    (workspace.folder / "models" / "toy.yaml").write_text(
        yaml.safe_dump({**TOY_YAML, "inputs": inputs}), encoding="utf-8"
    )
    assert mentions(refusal(workspace.ask()), "no size to s")


def test_results_that_are_no_folder_are_one_line_and_exit_code_2(workspace: Workspace) -> None:
    (workspace.folder / "results").write_text("", encoding="utf-8")
    assert mentions(refusal(workspace.ask()), "not a folder")


def test_a_report_of_yesterday_is_not_passed_off_as_new(workspace: Workspace) -> None:
    report = workspace.folder / "results" / "REPORT.txt"
    report.parent.mkdir()
    report.write_text("yesterday's", encoding="utf-8")
    workspace.configure(models=["nope"])
    done = workspace.run("results/REPORT.txt")
    assert done.returncode == 2 and "Nothing to be done" not in done.stdout + done.stderr


def test_a_sequence_over_the_models_maximum_is_a_refused_case_and_the_rest_goes_on(workspace: Workspace) -> None:
    workspace.configure(shapes=["b1", "b65"])
    jobs = workspace.jobs("benchmarks")
    done = workspace.run("results/reports/toy/cases.csv")
    assert done.returncode == 0, done.stderr
    cases = Path(workspace.folder, "results/reports/toy/cases.csv").read_text(encoding="utf-8")
    assert jobs["benchmark"] == 5  # ort_cpu in three formats and torch_eager in two, at b1 alone
    refused = [line for line in cases.splitlines() if ",b65,refused," in line]
    assert any("b65" in line.split(",refused,")[1] and "b64" in line for line in refused)


def test_a_key_that_is_given_twice_is_one_line_and_exit_code_2(workspace: Workspace) -> None:
    path = workspace.folder / "config.yaml"
    path.write_text(path.read_text(encoding="utf-8") + "\nstudy: other\n", encoding="utf-8")
    assert "study is given twice" in refusal(workspace.run())
