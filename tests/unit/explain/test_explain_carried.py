"""Logs as containers, orchestrators, journals and CI hand them on: answered as what the tool wrote itself."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from inferprof import cli
from inferprof.explain import answer, explain

TIME = "2026-01-01T10:00:00.123456789Z"
Carrier = Callable[[str], str]
CARRIERS: dict[str, Carrier] = {
    "compose": lambda line: f"trt-1  | {line}",
    "docker -t": lambda line: f"{TIME} {line}",
    "CRI": lambda line: f"{TIME} stdout F {line}",
    "kubectl": lambda line: f"[pod/trt-7c9/main] {line}",
    "compose around docker -t": lambda line: f"trt-1  | {TIME} {line}",
    "journal": lambda line: f"Jan 01 10:00:00 node-3 trt[812]: {line}",
    "journal, ISO": lambda line: f"2026-01-01T10:00:00+0000 node-3 trt[812]: {line}",
    "GitHub": lambda line: f"bench\tRun trtexec\t{TIME} {line}",
    "GitLab": lambda line: f"{TIME} 00O {line}",
    "Jenkins": lambda line: f"[2026-01-01T10:00:00.123Z] {line}",
    "Jenkins, classic": lambda line: f"10:00:00  {line}",
    "ts": lambda line: f"2026-01-01 10:00:00 {line}",
    "mpirun": lambda line: f"[1,0]<stdout>:{line}",
    "srun": lambda line: f"0: {line}",
    "Docker's json-file": lambda line: json.dumps({"log": f"{line}\n", "stream": "stdout", "time": TIME}).replace(
        '{"log": ', '{"log":'
    ),
    "cat -n": lambda line: f"    12\t{line}",
    "logging": lambda line: f"INFO:root:{line}",
    "logging with times": lambda line: f"2026-01-01 10:00:00,123 - INFO - {line}",
    "mail": lambda line: f"> {line}",
    "colours": lambda line: f"\x1b[32m{line}\x1b[0m",
    "indented in Markdown": lambda line: f"    {line}",
    "a web page's blanks": lambda line: line.replace(" ", "\xa0"),
    "a web page's signs": html.escape,
    "mail around indented code": lambda line: f"> \t{line}",
    "every line twice ended": lambda line: f"{line}\r\r",
}
WHOLE: dict[str, Callable[[str], bytes]] = {
    "PowerShell": lambda text: text.encode("utf-16"),
    "a page": lambda text: f"<pre><code>{html.escape(text, quote=False)}</code></pre>\n".encode(),
    "an issue": lambda text: f"It is slow:\n\n```\n{text}```\n\nThanks!\n".encode(),
    "double spacing": lambda text: "\n\n".join(text.splitlines()).encode() + b"\n",
}
"""What is around a file as a whole."""
ORT = (
    "2026-01-01 10:00:00.1 [V:onnxruntime:, session_state.cc:1148 Verify] Node placements\n"
    "2026-01-01 10:00:00.1 [V:onnxruntime:, session_state.cc:1154 Verify]  Node(s) placed on "
    "[CUDAExecutionProvider]. Number of nodes: 1\n"
    "2026-01-01 10:00:00.1 [V:onnxruntime:, session_state.cc:1156 Verify]   Conv (conv1)\n"
)
LOGS = {
    "trtexec": "trt_log/trt10.16.1_trtexec_build_and_infer.log",
    "trtexec 7": "trt_log/trt7.1_jetson_resnet50_trtexec.txt",
    "ncu": "ncu_csv/ncu_cli_text_openmp_nvhpc.txt",
    "ORT": "",
}


@pytest.fixture(scope="module", params=LOGS)
def log(request: pytest.FixtureRequest, shared: Path) -> str:
    name = LOGS[request.param]
    return (shared / "real" / name).read_text(errors="replace") if name else ORT


@pytest.mark.parametrize("carrier", CARRIERS)
def test_what_carried_a_log_changes_no_answer(carrier: str, log: str, tmp_path: Path) -> None:
    answers = []
    for folder, text in (("plain", log), ("carried", "\n".join(map(CARRIERS[carrier], log.splitlines())) + "\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.log").write_text(text)
        answers.append([answer.render(case) for case in explain([tmp_path / folder / "run.log"])])
    assert answers[1] == answers[0]


@pytest.mark.parametrize("around", WHOLE)
@pytest.mark.parametrize(
    "name",
    [
        LOGS["trtexec"],
        "nsys_csv/cuda_gpu_kern_sum_nsys2025.3.2_a100_vllm_qwen2.5-7b.csv",
        "nsys_csv/nsys_stats_all_nsys2022.4.2_cupy.txt",
        "ncu_csv/ncu_details_a100_julia_rules.csv",
        "ort_profile/ort_2019-06_cpu_mnist_no_provider.json",
    ],
)
def test_what_pastes_and_shells_do_to_a_file_changes_no_answer(
    around: str, name: str, tmp_path: Path, shared: Path
) -> None:
    plain = shared / "real" / name
    carried = tmp_path / plain.name
    carried.write_bytes(WHOLE[around](plain.read_text()))
    assert [answer.render(case) for case in explain([carried])] == [answer.render(case) for case in explain([plain])]


def test_of_a_cut_log_of_trtexec_no_warning_is_called_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "trtexec.log"
    path.write_text(
        "&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=m.onnx\n"
        "[01/01/2026-10:00:00] [W] Dynamic dimensions required for input: x, but no shapes were provided.\n"
        "[01/01/2026-10:00:01] [I] Engine built in 10 sec.\n"
    )
    (case,) = explain([path])
    assert case.failure is not None
    assert "cut" in case.failure and "Dynamic" not in case.failure
    path.write_text(f"{path.read_text()}&&&& PASSED TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=m.onnx\n")
    (case,) = explain([path])
    assert case.failure is not None and "cut" not in case.failure


@pytest.fixture
def two_of_one_name(tmp_path: Path) -> list[Path]:
    files = [tmp_path / folder / "runs.1" / "kernels.csv" for folder in ("before", "after")]
    for file, ns in zip(files, (3000, 1000), strict=True):
        file.parent.mkdir(parents=True)
        file.write_text(f"Time (%),Total Time (ns),Instances,Avg (ns),Name\n100.0,{ns},1,{ns}.0,gemm\n")
    return files


def test_files_of_one_name_are_told_apart_by_their_folders(
    two_of_one_name: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["before/runs.1/kernels.csv", "after/runs.1/kernels.csv"]
    assert [list(case.names) for case in explain(two_of_one_name)] == [[name] for name in names]
    assert len({case.case.model for case in explain(two_of_one_name)}) == 2
    a, b = map(str, two_of_one_name)
    assert cli.main(["explain", a, "--against", b]) == 0
    assert capsys.readouterr().out.startswith(" against ".join(names))


@pytest.mark.parametrize("place", ["/proc/col", "/dev/null/x", "kernels.csv/x"])
@pytest.mark.parametrize("verb", ["explain", "against", "watch"])
def test_what_was_computed_is_said_where_nothing_can_be_written(
    two_of_one_name: list[Path], place: str, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = map(str, two_of_one_name)
    out = str(two_of_one_name[0].parent / place)
    given = {
        "explain": ["explain", a],
        "against": ["explain", a, "--against", b],
        "watch": ["watch", "--with", "kineto"],
    }
    command = [*given[verb], "--out", out, *(["--", "echo"] if verb == "watch" else [])]
    assert cli.main(command) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and Path(out).name in said.err
    assert ("gemm" in said.out) == (verb != "watch")  # a program is not run in vain
