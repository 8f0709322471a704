"""verify as a whole: what is tried, what is not here and why, what a crash or a hang is, and what is said of it."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import facts, mentions, naming, states
from tests.unit.verify.conftest import Tools, bandwidth, option, write

from inferprof import bundles, cli, registry, verify
from inferprof.errors import UserError
from inferprof.machine import hardware
from inferprof.machine.hardware import Gpu, Machine
from inferprof.verify.rows import ROWS, Row, next_step

Verified = Callable[..., dict[str, dict[str, Any]]]
CPU = Machine(gpu=None, packages={"onnxruntime-gpu": "1.31.1"}, cpu="Xeon", label="cpu")


def h100(**changes: Any) -> Machine:
    gpu = Gpu("NVIDIA H100 80GB HBM3", (9, 0), 80 << 30, "GPU-1", "580.159")
    packages = dict.fromkeys(hardware.PACKAGES, "1.0") | {"tensorrt": "10.14.1", "onnxruntime-gpu": "1.31.1"}
    machine = Machine(gpu, packages, {"nsys": "bin/nsys", "ncu": "bin/ncu"}, nvinfer=frozenset({10}), label="h100")
    return dataclasses.replace(machine, **changes)


# --- pass ------------------------------------------------------------------------------------------------------


def test_every_row_passes_on_a_machine_that_can_do_everything(verified: Verified) -> None:
    rows = verified()
    assert list(rows) == [row.name for row in ROWS]
    assert {name: row["detail"] for name, row in rows.items() if row["outcome"] != "pass"} == {}
    assert {row["next_step"] for row in rows.values()} == {None}


def test_what_was_seen_is_told(verified: Verified) -> None:
    rows = verified()
    assert facts(rows["ort_cuda"]["detail"]) == ["SQNR", "120.0 dB", "least", "100 dB", "device", "101.0 µs"]
    assert rows["layers"]["detail"] == "5 layers, 5 timed"
    assert facts(rows["join"]["detail"]) == ["100%", "kernels", "23%", "ONNX"]
    ran = "asked for nvfp4: 100.0 % of the time in matrix products ran in fp4"
    assert facts(rows["kernels_nvfp4"]["detail"]) == [*facts(f"{ran}"), "SQNR", "120.0 dB", "least", "100 dB"]
    assert facts(rows["self_checks"]["detail"], "checks") == ["34", "checks", "17", "passed", "ort_cuda", "0.0%"]


def test_outputs_are_compared_with_the_fp32_graph_whatever_the_format(
    verified: Verified, tools: Tools, tmp_path: Path
) -> None:
    verified(None, "kernels_fp8")
    runs = [words for words in tools.ran if words.startswith("run ")]
    assert len(runs) == 1
    assert states(
        runs[0],
        "--precision",
        "fp8",
        "--machine",
        "blackwell",
        "--reference",
        f"{tmp_path}/out/onnx/two_layers/fp32.onnx",
    )


def test_the_log_of_a_row_has_its_commands(verified: Verified, tmp_path: Path) -> None:
    log = verified(None, "build_ahead")["build_ahead"]["log"]
    lines = (tmp_path / "out" / log).read_text().splitlines()
    assert [line.split(" -m ")[1].split(" ")[:3] for line in lines] == 2 * [["inferprof", "build", "tensorrt_rtx"]]
    assert [line.split("--target ")[1].split(" ")[0] for line in lines] == ["12.0", "12.1"]
    assert all(line.startswith("$ ") for line in lines)


def test_a_failed_backend_does_not_stand_for_the_gpu(verified: Verified, tools: Tools) -> None:
    rows = verified(lambda tools, words: 1 if words[:2] == ["run", "ort_cuda"] else None)
    assert rows["ort_cuda"]["outcome"] == "fail"
    assert rows["nsys"]["detail"].endswith(" of torch_eager")
    assert rows["telemetry"]["outcome"] == "pass"


def test_an_engine_that_was_built_elsewhere_is_run_and_none_is_built(
    verified: Verified, tools: Tools, tmp_path: Path
) -> None:
    verified(None, "layers", engine=tmp_path / "given.engine")
    assert [words.split()[0] for words in tools.ran] == ["export", "run", "capture", "table"]
    assert all(f"tensorrt {tmp_path}/given.engine" in words for words in tools.ran[1:3])


# --- not here --------------------------------------------------------------------------------------------------


def test_without_a_gpu_most_rows_are_not_here_and_none_fails(verified: Verified) -> None:
    rows = verified(machine=CPU)
    assert {name for name, row in rows.items() if row["outcome"] == "pass"} == {
        "probe",
        "model",
        "ort_cpu",
        "self_checks",
    }
    assert {row["outcome"] for row in rows.values()} == {"pass", "not here"}
    assert all(row["next_step"] for row in rows.values() if row["outcome"] == "not here")
    assert rows["ort_cuda"]["detail"] == rows["kernels_fp8"]["detail"] == "no GPU"
    assert "`nvidia-smi` must list it" in rows["ort_cuda"]["next_step"]
    assert facts(rows["model"]["detail"], "nodes", "installed")[:4] == ["nodes", "torch", "not", "installed"]


def test_formats_that_the_gpu_lacks_are_not_here_in_the_words_of_the_refusal(verified: Verified) -> None:
    rows = verified(machine=h100())
    assert rows["kernels_fp8"]["outcome"] == "pass"
    for precision in ("mxfp8", "nvfp4"):
        row = rows[f"kernels_{precision}"]
        assert (row["outcome"], facts(row["detail"], "compute")) == (
            "not here",
            [*facts(f"{precision}"), "compute", "9.0", "10.0"],
        )
        assert mentions(row["next_step"], "nothing to fix", "GPU", "no such hardware")
    assert facts(rows["tensorrt_rtx"]["detail"], "compute", "run")[:5] == [
        "TensorRT-RTX",
        "not",
        "run",
        "compute",
        "9.0",
    ]
    assert rows["tensorrt_rtx"]["next_step"].startswith("nothing to fix")


def test_counters_that_are_not_permitted_are_not_here_and_the_guide_is_named(verified: Verified) -> None:
    row = verified(machine=h100(no_counters=hardware.NOT_PERMITTED))["ncu"]
    assert (row["outcome"], row["detail"]) == ("not here", f"ncu: {hardware.NOT_PERMITTED}")
    assert facts(row["next_step"], "verify") == ["docs/new-gpu.md", "Counters", "verify"]


def test_without_nsys_a_fused_region_among_the_layers_leaves_formats_untold(verified: Verified) -> None:
    rows = verified(machine=h100(tools={}))
    assert facts(rows["join"]["detail"]) == ["trt_nodes", "not", "PATH", "Nsight", "Systems"]
    assert rows["kernels_fp16"]["outcome"] == "fail"
    assert re.search(r"fp16, of \d+\.\d % nothing\b", rows["kernels_fp16"]["detail"])


def test_without_pandas_layers_and_partitions_are_told_all_the_same(
    verified: Verified, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pandas" else there(name))
    rows = verified(None, "layers", "partition_ort_tensorrt", "join", "nsys", "kernels_fp16")
    assert rows["layers"]["detail"] == "5 layers, 5 timed"
    assert rows["partition_ort_tensorrt"]["outcome"] == "pass"
    for name in ("join", "nsys", "kernels_fp16"):
        assert (rows[name]["outcome"], rows[name]["detail"]) == ("not here", "pandas is not installed")
    assert not [words for words in tools.ran if words.startswith("table ")]


def test_an_attempt_asks_no_refusal(verified: Verified) -> None:
    old = h100(packages={**h100().packages, "tensorrt": "8.5.3.1"})
    assert facts(verified(None, "tensorrt", machine=old)["tensorrt"]["detail"]) == ["tensorrt", "8.5.3.1", "10.8"]
    assert verified(None, "tensorrt", machine=old, attempt=True)["tensorrt"]["outcome"] == "pass"


def test_a_row_that_rests_on_a_failed_one_is_not_here(verified: Verified) -> None:
    row = verified(lambda tools, words: 1 if words[0] == "export" else None)["ort_cpu"]
    assert (row["outcome"], facts(row["detail"], "model")) == ("not here", ["model", "not", "pass"])


# --- fail ------------------------------------------------------------------------------------------------------

WITH_VERBS = [row.name for row in ROWS if row.name != "self_checks"]


@pytest.mark.parametrize("name", WITH_VERBS)
def test_a_crash_in_any_row_is_its_failure(name: str, verified: Verified) -> None:
    row = verified(lambda tools, words: -11 if tools.row == name else None, name)[name]
    assert row["outcome"] == "fail"
    assert facts(row["detail"])[-2:] == ["SIGSEGV", "nothing"]
    assert mentions(row["next_step"], "crash of a library")


@pytest.mark.parametrize("name", WITH_VERBS)
def test_a_row_that_hangs_fails_after_its_time(name: str, verified: Verified) -> None:
    def hang(tools: Tools, words: list[str]) -> int | None:
        if tools.row == name:
            raise subprocess.TimeoutExpired(words, 150)
        return None

    row = verified(hang, name)[name]
    assert row["outcome"] == "fail"
    assert facts(row["detail"])[-3:] == ["not", "150 s", "nothing"]
    assert mentions(row["next_step"], "end", "row's log")


def test_the_last_words_of_what_failed_are_its_reason(verified: Verified, tmp_path: Path) -> None:
    def fails(tools: Tools, words: list[str]) -> int:
        with (tmp_path / "out/log/verify/bandwidth.log").open("a") as log:
            log.write("inferprof: Measure: 1 s\nTraceback (most recent call last):\nRuntimeError: no such stream\n\n")
        return 1

    row = verified(lambda tools, words: fails(tools, words) if words[0] == "bandwidth" else None, "bandwidth")
    assert facts(row["bandwidth"]["detail"], "bandwidth") == ["inferprof bandwidth", "1", "RuntimeError", "no"]


def test_a_file_that_holds_something_else_is_a_failure_and_not_the_end(verified: Verified) -> None:
    def other(tools: Tools, words: list[str]) -> int | None:
        return write(Path(option(words, "--out")), {}) if words[0] == "bandwidth" else None

    row = verified(other, "bandwidth")["bandwidth"]
    assert row["outcome"] == "fail"
    assert mentions(row["detail"], "bandwidth.json", "h2d", "d2d")


def test_a_memory_slower_than_the_link_is_a_failure_but_for_a_gpu_that_shares_the_hosts(verified: Verified) -> None:
    def same(integrated: bool) -> Callable[[Tools, list[str]], int | None]:
        gpus = [{"name": "NVIDIA GB10", "used": True, "integrated": integrated}]
        contents: dict[str, Any] = {
            "probe": {"system": {"python": "3.12.3"}, "packages": {}, "gpus": gpus, "cpu": {"model": "Arm"}},
            "bandwidth": bandwidth(120.0, 110.0),
        }

        def tell(tools: Tools, words: list[str]) -> int | None:
            return write(Path(option(words, "--out")), contents[words[0]]) if words[0] in contents else None

        return tell

    rows = [verified(same(shared), "probe", "bandwidth")["bandwidth"] for shared in (True, False)]
    assert [row["outcome"] for row in rows] == ["pass", "fail"]
    assert "link 120.0 GB/s, memory 110 GB/s" in rows[0]["detail"]


def test_rows_that_are_not_reached_in_time_fail(tools: Tools, tmp_path: Path) -> None:
    clock = itertools.count(0, 20)
    content = verify.verify(verify.Asked(tmp_path, minutes=1), CPU, runner=tools, clock=lambda: next(clock))
    rows = {row["name"]: row for row in content["rows"]}
    assert rows["self_checks"]["outcome"] == "fail"
    assert facts(rows["self_checks"]["detail"], "rows") == ["not", "all", "rows"]
    assert facts(rows["self_checks"]["next_step"], "rows", "verify") == [
        "verify",
        "more",
        "--minutes",
        "rows",
        "--only",
    ]


def test_rounds_that_are_far_apart_fail(verified: Verified) -> None:
    def slow(tools: Tools, words: list[str]) -> int | None:
        if words[0] != "run" or option(words, "--round") != "1":
            return None
        record = tools.record(words)
        record["boundaries"]["device"]["samples_ns"] = [200_000]
        return write(Path(option(words, "--out")), record)

    detail = verified(slow)["self_checks"]["detail"]
    assert facts(detail) == ["ort_cuda", "98.0%", "GPU", "not"]


def test_records_of_an_earlier_verify_do_not_count(verified: Verified, tools: Tools, tmp_path: Path) -> None:
    old = tools.record(
        ["run", "ort_cpu", "--precision", "fp32", "--variant", "old", "--shape", "b4", "--machine", "blackwell"],
        started="2020-01-01T00:00:00",
    )
    old["checks"]["outputs_finite"] = {"passed": False, "detail": "NaN"}
    write(tmp_path / "out/blackwell/benchmark/two_layers/fp32/ort_cpu/old/b4/r0.json", old)
    assert verified(None, "self_checks")["self_checks"]["outcome"] == "pass"


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        (f"ncu: {hardware.NOT_PERMITTED}", "allow counters"),
        ("no GPU: on the CPU it compiles for about a minute a case", "verify on the machine with the GPU"),
        ("ONNX Runtime wants libnvinfer.so.10; found: libnvinfer.so.11", "use the container, whose TensorRT"),
        ("nsys: not on PATH; install Nsight Systems", "use the container, which has the tool"),
        ("torch.compile needs a C++ compiler; install one of c++, g++, clang++", "apt install g++"),
        ("onnxruntime-gpu is not installed", "use the container (`make image`)"),
        (
            "`inferprof capture` exited with 1: ModuleNotFoundError: No module named 'x'",
            "use the container (`make image`)",
        ),
        ("tensorrt 10.3: needs 10.8 or newer", "use the container (`make image`)"),
        ("libcudnn.so.9: cannot open shared object file", "use the container; else torch of CUDA 13"),
        ("CUDA out of memory. Tried to allocate 2 GiB", "end what else holds the GPU's memory"),
        ("ncu: the counters are held by another tool: pause DCGM", "pause DCGM"),
        ("ncu: this ncu does not fit the driver", "install a newer driver"),
        ("ncu: no GPU on this machine", "verify on the machine with the GPU"),
        ("NVML tells no clock of this GPU", "read the log"),
        ("anything else", "read the log"),
    ],
)
def test_the_next_step_follows_from_the_reason(reason: str, step: str) -> None:
    row = Row("x", "x", lambda site: None, lambda site: "", "read the log")
    assert str(next_step(row, "fail", reason)).startswith(step)


# --- what is asked for and what is said ------------------------------------------------------------------------


def test_a_row_is_tried_with_those_that_it_needs(verified: Verified) -> None:
    assert list(verified(None, "partition_ort_tensorrt")) == ["model", "ort_tensorrt", "partition_ort_tensorrt"]


def test_a_row_that_does_not_exist_is_named_with_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=naming("unknown", "rows", "nope", "bandwidth", "build_ahead")):
        verify.verify(verify.Asked(tmp_path, only=("nope",)), CPU)


def test_every_row_comes_behind_those_that_it_needs() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert all(names.index(other) < names.index(row.name) for row in ROWS for other in row.after)
    tried = [name for name, described in registry.precisions().items() if described.least_share is not None]
    assert [name for name in names if name.startswith("kernels_")] == [f"kernels_{name}" for name in tried]
    assert tried == ["fp16", "fp8", "mxfp8", "nvfp4"]


CONTENT: dict[str, Any] = {
    "machine": "blackwell",
    "gpu": "RTX",
    "started": "2026-01-01T00:00:00+00:00",
    "seconds": 61.2,
    "rows": [
        {"name": "probe", "outcome": "pass", "detail": "RTX", "next_step": None, "seconds": 0.5},
        {"name": "ncu", "outcome": "not here", "detail": "no [ncu]", "next_step": "get it", "seconds": 0.0},
        {"name": "nsys", "outcome": "fail", "detail": "broken", "next_step": "mend it", "seconds": 60.0},
    ],
}


def test_the_text_has_a_line_per_row_and_what_to_do_below() -> None:
    assert verify.render(CONTENT).splitlines() == [
        "inferprof verify: RTX, blackwell, 2026-01-01T00:00:00+00:00",
        "",
        "pass      probe                        0.5 s  RTX",
        "not here  ncu                          0.0 s  no [ncu]",
        "                                              → get it",
        "fail      nsys                        60.0 s  broken",
        "                                              → mend it",
        "",
        "1 pass, 1 fail, 1 not here, in 61 s",
    ]


def test_rows_behind_each_other_that_want_the_same_say_it_once() -> None:
    rows = [{**CONTENT["rows"][1], "name": name} for name in ("ncu", "nsys")]
    lines = verify.render({**CONTENT, "rows": [*rows, CONTENT["rows"][2], rows[0]]}).splitlines()
    assert [line.partition("→ ")[2] for line in lines if "→" in line] == ["get it", "as above", "mend it", "get it"]


def test_what_to_send_back_is_named_at_the_end() -> None:
    text = verify.render({**CONTENT, "bundle": "verify.bundle.zip"})
    assert facts(text)[-2:] == ["61 s", "verify.bundle.zip"]


def test_the_bundle_holds_what_verify_said_and_measured_and_no_path(verified: Verified, tmp_path: Path) -> None:
    verified(lambda tools, words: 1 if words[0] == "bandwidth" else None)
    manifest = bundles.unbundle(tmp_path / "out/verify.bundle.zip", tmp_path / "unpacked")
    files = set(manifest.files)
    assert {"verify.json", "verify.txt", "log/verify/bandwidth.log", "blackwell/environment.json"} < files
    assert "blackwell/benchmark/two_layers/fp32/ort_cuda/default/b4/r0.json" in files
    assert "blackwell/table/nsys/two_layers/fp32/ort_cuda/default/b4.parquet" in files
    assert not [name for name in files if name.endswith((".onnx", ".engine"))]
    content = json.loads((tmp_path / "unpacked/verify.json").read_text())
    assert {row["name"] for row in content["rows"] if row["outcome"] == "fail"} == {"bandwidth"}
    texts = [path.read_bytes() for path in (tmp_path / "unpacked").rglob("*") if path.is_file()]
    assert not [text for text in texts if str(tmp_path / "out").encode() in text]


def test_where_nothing_was_measured_the_bundle_holds_what_was_said(verified: Verified, tmp_path: Path) -> None:
    verified(lambda tools, words: 1 if words[0] == "export" else None, "model")
    files = set(bundles.read_manifest(tmp_path / "out/verify.bundle.zip").files)
    assert files >= {"verify.json", "verify.txt", "log/verify/model.log"}
    assert not [name for name in files if "/benchmark/" in name]


def test_a_bundle_that_cannot_be_made_costs_no_row(
    verified: Verified, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*args: Any, **options: Any) -> Any:
        raise UserError("x.sqlite is neither text nor a capture")

    monkeypatch.setattr(bundles, "write", refused)
    assert verified(None, "model")["model"]["outcome"] == "pass"
    text = (tmp_path / "out/verify.txt").read_text()
    assert facts(text, "capture")[-2:] == ["x.sqlite", "capture"]


def test_logs_of_an_earlier_verify_are_gone(verified: Verified, tmp_path: Path) -> None:
    verified(None, "bandwidth")
    verified(None, "model")
    assert [path.name for path in (tmp_path / "out/log/verify").iterdir()] == ["model.log"]


def test_the_table_of_a_terminal_says_the_same_in_colours() -> None:
    drawn = verify.drawn(CONTENT, 80)
    assert "\x1b[1;31mfail" in drawn
    assert all(word in drawn for word in ("no [ncu]", "→ get it", "→ mend it", "1 pass, 1 fail, 1 not here"))


@pytest.mark.parametrize(("outcome", "code"), [("pass", 0), ("not here", 0), ("fail", 1)])
def test_the_exit_code_says_whether_a_row_failed(
    outcome: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{**CONTENT["rows"][0], "outcome": outcome}]
    monkeypatch.setattr(verify, "verify", lambda asked: {**CONTENT, "rows": rows})
    assert cli.main(["verify"]) == code
    assert f"{outcome:8}  probe" in capsys.readouterr().out


def test_files_say_what_the_screen_says(verified: Verified, tmp_path: Path) -> None:
    verified(machine=CPU)
    content = json.loads((tmp_path / "out/verify.json").read_text())
    assert (tmp_path / "out/verify.txt").read_text() == verify.render(content) + "\n"


@pytest.mark.slow
def test_on_this_machine_nothing_fails(tmp_path: Path) -> None:
    only = ("ort_cpu", "torch_eager", "build_ahead", "partition_parser", "self_checks")
    command = [sys.executable, "-m", "inferprof", "verify", "--out", str(tmp_path), "--only", *only]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    content = json.loads((tmp_path / "verify.json").read_text())
    assert {row["outcome"] for row in content["rows"]} == {"pass"}
