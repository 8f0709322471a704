"""`inferprof formats`: what a table says of number formats, and the gate on it."""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.facts import facts, mentions, states

from inferprof import cli
from inferprof.tables.schema import conform, of_case


@pytest.fixture
def table(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Our capture of TensorRT 8.5 as its table: its products and its convolution are all FP16."""
    capture = tmp_path / "capture/trt_nodes/vit/fp16/tensorrt/default/b8.sqlite"
    capture.parent.mkdir(parents=True)
    capture.write_bytes(lzma.decompress((repository / "tests/data/nsys/h100_tensorrt_vit2.sqlite.xz").read_bytes()))
    shutil.copy(
        repository / "tests/data/trt_layers/h100_tensorrt_vit2.graph.json", capture.with_suffix(".graph.json")
    )
    out = tmp_path / "b8.parquet"
    assert cli.main(["table", "trt_nodes", str(capture), "--out", str(out)]) == 0
    capsys.readouterr()
    return out


def test_the_case_says_what_was_asked_for(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["formats", str(table), "--at-least", "0.9"]) == 0
    assert [facts(text, "kernel", "reformat") for text in capsys.readouterr().out.splitlines()] == [
        ["fp16", "100.0 %", "fp16"],
        ["reformat", "81888 ns", "3.3 %", "all", "kernel"],
    ]


def test_below_the_gate_is_exit_code_1_with_the_longest_offenders(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["formats", str(table), "--asked", "fp8", "--at-least", "0.9"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert facts(lines[0]) == ["fp8", "0.0 %", "fp8", "100.0 %", "fp16"]
    assert lines[1].startswith("   30.1 %  fp16: sm80_xmma_fprop_implicit_gemm") and lines[1].endswith(" of /p/Conv")


def test_counters_overrule_names(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize64x64x64_stage4_warpsize2x2x1_tensor16x8x16_fused13_kernel"
    row = {"level": "kernel", "name": name, "metric": "tensor_ops_int8", "value": 9.0, "text": None}
    ncu = of_case(conform(pd.DataFrame([row]), "ncu"), "m", None)
    ncu.to_parquet(tmp_path / "ncu.parquet")
    assert cli.main(["formats", str(table), "--ncu", str(tmp_path / "ncu.parquet")]) == 0
    assert states(capsys.readouterr().out, "97.3 %", "fp16", "2.7 %", "int8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame[frame["level"] == "range"], "the table holds no kernel: give that of nsys"),
        (lambda frame: frame.assign(precision=None), "does not say what number format was asked for: give --asked"),
        (lambda frame: frame.drop(columns="level"), "is not a table that `inferprof table` wrote: it lacks level"),
    ],
)
def test_what_cannot_be_told_is_one_line(
    table: Path, change: object, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(change)
    change(pd.read_parquet(table)).to_parquet(table)
    assert cli.main(["formats", str(table)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and message in err


def test_another_file_is_no_table(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.parquet").write_text("text")
    assert cli.main(["formats", str(tmp_path / "x.parquet")]) == 2
    assert mentions(capsys.readouterr().err, "x.parquet is not a table", "inferprof table")
    assert cli.main(["formats", "missing.parquet"]) == 2
    assert "missing.parquet: no such file" in capsys.readouterr().err
