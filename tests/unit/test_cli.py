"""The command line: one line and exit code 2 for what the user can mend, and records for what failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inferprof import cli


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["quantize", "fp7", "x.onnx", "--spec", "m.yaml", "--out", "y.onnx"], "unknown precisions fp7; known: "),
        (
            ["build", "trt", "x.onnx", "--spec", "m.yaml", "--shape", "b1", "--out", "y"],
            "unknown backends trt; known: ",
        ),
        (["table", "nvprof", "x", "--out", "y"], "unknown profilers nvprof; known: "),
        (["export", "missing.yaml", "--out", "y.onnx"], "missing.yaml"),
    ],
)
def test_an_unknown_name_or_file_is_one_line_and_exit_code_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(argv) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith("inferprof: ") and message in err


def test_an_option_that_is_not_a_name_and_a_value_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["quantize", "int8", "x.onnx", "--spec", "m.yaml", "--out", "y.onnx", "--set", "max"])
    assert stopped.value.code == 2
    assert "'max' is not name=value" in capsys.readouterr().err


def test_a_backend_that_loads_the_onnx_builds_no_engine(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["build", "ort_cpu", "x.onnx", "--spec", "m.yaml", "--shape", "b1", "--out", "y.engine"]
    assert cli.main(argv) == 2
    assert "ort_cpu builds no engine; it loads the onnx as it is" in capsys.readouterr().err


def test_cases_are_listed_from_a_config_given_as_json(tmp_path: Path, repository: Path) -> None:
    config = {
        "study": "one",
        "machine": "lab",
        "models": ["vit_tiny"],
        "precisions": ["fp32"],
        "backends": ["ort_cpu"],
        "shapes": ["b1"],
    }
    out = tmp_path / "cases.csv"
    argv = ["cases", "--config", json.dumps(config), "--models", str(repository / "models"), "--out", str(out)]
    assert cli.main(argv) == 0
    assert out.read_text(encoding="utf-8").splitlines() == [
        "machine,model,precision,backend,variant,shape,outcome,reason",
        "lab,vit_tiny,fp32,ort_cpu,default,b1,run,",
    ]
