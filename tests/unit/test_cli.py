"""The command line: one line and exit code 2 for user errors, and records for what failed."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.facts import facts, mentions, states

from inferprof import cli, registry

DIAGNOSE = ["diagnose", "results", "--machine", "m", "--case", "vit/fp16/ort_cuda/default/b8", "--out", "y.json"]


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
        ([*DIAGNOSE, "--set", "launchbound=0.2"], "unknown thresholds launchbound; known: "),
        ([*DIAGNOSE, "--set", "launch_bound=much"], "launch_bound=much: a threshold is a number"),
    ],
)
def test_an_unknown_name_or_file_is_one_line_and_exit_code_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(argv) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith("inferprof: ") and message in err


RUN = ["run", "ort_cpu", "x.onnx", "--shape", "b1", "--out", "y.json"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            [*RUN, "--set", "cudagraph=true"],
            "unknown options of backend ort_cpu: cudagraph; known: arena, denormal_as_zero, ",
        ),
        ([*RUN, "--kineto", "y.json.gz"], "give N too"),
        ([*RUN, "--profiled", "3", "--modules"], "--modules names ranges in a trace of --kineto"),
        (["audit", "x.onnx", "--precision", "fp7"], "unknown precisions fp7; known: "),
        (["audit", "x.onnx", "--shape", "b8_h2"], "model vit_tiny has no such shape as b8_h2; its symbols: b"),
        (["cases", "--config", "missing.yaml", "--out", "y"], "missing.yaml: no such file"),
        (["cases", "--config", "{", "--out", "y"], "--config is not JSON"),
    ],
)
def test_what_would_be_ignored_or_is_not_there_is_refused(
    argv: list[str],
    message: str,
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.onnx").touch()
    spec = ["--spec", str(repository / "models/vit_tiny.yaml")]
    needs_spec = argv[0] == "run" or "b8_h2" in argv
    assert cli.main([*argv, *(spec if needs_spec else [])]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        RUN,
        ["audit", "x.onnx"],
        ["partition", "x.onnx"],
        ["quantize", "int8", "x.onnx", "--out", "y.onnx"],
        ["accuracy", "int8", "x.onnx", "--reference", "z.onnx", "--out", "y.json"],
        ["build", "tensorrt_rtx", "x.onnx", "--shape", "b1", "--out", "y.engine"],
    ],
    ids=lambda argv: argv[0],
)
def test_an_input_that_is_not_there_is_no_result(
    argv: list[str],
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([*argv, "--spec", str(repository / "models/vit_tiny.yaml")]) == 2
    assert facts(capsys.readouterr().err, "file") == ["inferprof", "x.onnx", "no", "file"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--profiled", "0", "'0' is not a whole number of at least 1"),
        ("--interval", "2", "'2' is not a number above 0 and up to 1"),
        ("--set", "profile=[b1", "'[b1' is no YAML value"),
        ("--set", "threads=1:30", "base 60"),
        ("--set", "threads=010", "octal"),
        ("--set", "threads=2026-13-45", "no YAML value"),
    ],
)
def test_a_value_that_a_flag_cannot_have_is_refused(
    flag: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main([*RUN, "--spec", "m.yaml", flag, value])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [
        ["--study", "../x"],
        ["--study", "/x"],
        ["--study", "a//b"],
        ["--study", "x", "--so-far", "../x"],
        ["--study", "x", "--so-far", "a/b"],
        ["--study", "x", "--so-far", ""],
    ],
)
def test_a_name_that_leads_out_of_its_folder_is_refused(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["report", str(tmp_path), "--machine", "m", *flags])
    assert stopped.value.code == 2 and "is not a name" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_case_that_leads_out_of_its_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "d.json"
    with pytest.raises(SystemExit) as stopped:
        cli.main(["diagnose", str(tmp_path), "--machine", "m", "--case", "../../../../x", "--out", str(out)])
    assert stopped.value.code == 2 and "model '..'" in capsys.readouterr().err


def test_what_is_no_onnx_file_is_said_to_be_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.md"
    path.write_text("# Notes", encoding="utf-8")
    assert cli.main(["audit", str(path)]) == 2
    err = capsys.readouterr().err
    assert states(err, "inferprof", *facts(f"{path}"), "not", "ONNX", "file") and err.count("\n") == 1


def test_a_terminal_that_lacks_a_letter_shows_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    path = tmp_path / "kernels.csv"
    path.write_text(f"{head}100.0,3000,3,1000.0,1000.0,1000,1000,0.0,größe\n", encoding="utf-8")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert cli.main(["explain", str(path)]) == 0
    assert b"gr??e" in written.getvalue()


def test_a_result_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert cli.main(["probe", "--out", str(tmp_path / "file" / "sub" / "x.json")]) == 2
    assert capsys.readouterr().err.endswith(f" {tmp_path}/file/sub: Not a directory\n")


def test_a_baseline_of_two_parts_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["report", "results", "--study", "s", "--machine", "m", "--baseline", "fp32/ort_cpu"])
    assert "'fp32/ort_cpu' is not PRECISION/BACKEND/VARIANT" in capsys.readouterr().err


def test_nothing_is_measured_into_the_folder_of_another_machine(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = "h100-80gb-hbm3-sm90-93fb0a94"
    probed = repository / "tests/data/records" / machine / "environment.json"
    (tmp_path / machine).mkdir()
    (tmp_path / machine / "environment.json").write_bytes(probed.read_bytes())
    (tmp_path / "x.onnx").touch()
    out = tmp_path / machine / "benchmark/vit_tiny/fp32/ort_cpu/default/b1/r0.json"
    argv = ["run", "ort_cpu", str(tmp_path / "x.onnx"), "--spec", str(repository / "models/vit_tiny.yaml")]
    assert cli.main([*argv, "--shape", "b1", "--machine", machine, "--out", str(out)]) == 2
    assert f"and {machine} was " in capsys.readouterr().err
    assert not out.exists()


def test_a_capture_from_elsewhere_has_no_case(tmp_path: Path) -> None:
    import pandas as pd

    capture = tmp_path / "sums.csv"
    capture.write_text("Time (%),Total Time (ns),Instances,Name\n100.0,600,3,gemm\n", encoding="utf-8")
    out = tmp_path / "table.parquet"
    assert cli.main(["table", "nsys", str(capture), "--out", str(out)]) == 0
    frame = pd.read_parquet(out)
    assert frame.loc[frame["level"] == "kernel", "name"].tolist() == ["gemm"]
    assert frame[["model", "precision", "backend", "variant", "shape"]].isna().all(axis=None)


def test_an_option_that_is_not_a_name_and_a_value_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["quantize", "int8", "x.onnx", "--spec", "m.yaml", "--out", "y.onnx", "--set", "max"])
    assert stopped.value.code == 2
    assert "'max' is not name=value" in capsys.readouterr().err


def test_a_backend_that_loads_the_onnx_builds_no_engine(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["build", "ort_cpu", "x.onnx", "--spec", "m.yaml", "--shape", "b1", "--out", "y.engine"]
    assert cli.main(argv) == 2
    assert states(capsys.readouterr().err, "ort_cpu", "no")


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


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["explain", "x", "--iteraton", "y"], "did you mean --iteration?"),
        (["audit", "x", "--prec", "int8"], "--prec"),
        (["serve", "ort_cpu", "x", "--policy", "dynamc"], "'dynamic'"),
    ],
)
def test_a_flag_that_a_verb_has_not_is_refused_with_what_was_meant(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(argv)
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_diagnosis_says_its_verdict_and_keeps_the_answer_of_every_check(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = "vit_base/fp16/ort_cuda/default/b114"
    out = tmp_path / "x.json"
    machine = "h100-80gb-hbm3-sm90-93fb0a94"
    results = str(repository / "tests/data/records")
    asked = ["diagnose", results, "--machine", machine, "--case", case, "--set", "hideable=0.5", "--out", str(out)]
    assert cli.main(asked) == 0
    told = capsys.readouterr().out
    assert mentions(told, "pageable memory", "36.9 %")
    content = json.loads(out.read_text(encoding="utf-8"))
    assert told == content["verdict"]["sentence"] + "\n"
    assert content["thresholds"] == {"hideable": 0.5}
    verdicts = {one["check"]: one["verdict"] for one in content["answers"]}
    assert list(verdicts) == list(registry.checks())
    assert verdicts["no_overlap"] == "clear"


def test_the_diagnosis_of_a_model_is_that_of_each_of_its_cases(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = "h100-80gb-hbm3-sm90-93fb0a94"
    asked = ["diagnose", str(repository / "tests/data/records"), "--machine", machine]
    assert cli.main([*asked, "--model", "vit_base", "--out", str(tmp_path / "vit_base")]) == 0
    written = sorted(path.relative_to(tmp_path).with_suffix("").as_posix() for path in tmp_path.rglob("*.json"))
    assert facts(capsys.readouterr().out, "cases") == [str(len(written)), "cases", "vit_base"]
    assert cli.main([*asked, "--case", written[0], "--out", str(tmp_path / "one.json")]) == 0
    assert (tmp_path / "one.json").read_text() == (tmp_path / f"{written[0]}.json").read_text()


def test_a_model_without_a_record_is_not_diagnosed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["diagnose", str(tmp_path), "--machine", "m", "--model", "vit", "--out", str(tmp_path / "vit")]
    assert cli.main(asked) == 2
    assert states(capsys.readouterr().err, "no", "vit", "inferprof", "run")


def test_a_verb_that_computes_nothing_starts_without_numpy() -> None:
    code = "import sys; from inferprof import commands; commands.parser(); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
