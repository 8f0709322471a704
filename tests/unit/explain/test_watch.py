"""`inferprof watch`: programs as they are, what is recorded of them, and that nothing secret stays in it."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.conftest import Export
from tests.unit.facts import facts, naming, states

from inferprof import cli
from inferprof.errors import UserError
from inferprof.explain import watch
from inferprof.explain.parts import parts_of

TOKEN = "ghp_PLANTEDplantedPLANTED0123456789"
TORCH = f"""
import sys
import torch
from torch.profiler import record_function

model = torch.nn.Linear(64, 64)
with record_function("{TOKEN}"):
    for _ in range(20):
        model(torch.ones(8, 64))
print(sys.argv[1:])
"""
ONNX_RUNTIME = """
import sys
import numpy as np
import onnxruntime

sessions = [onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"]) for _ in range(2)]
shared = onnxruntime.SessionOptions()
for session in sessions[: int(sys.argv[2])]:
    for _ in range(5):
        session.run(None, {"x": np.ones((2, 3), np.float32)})
"""


def program(path: Path, text: str) -> list[str]:
    path.write_text(text)
    return [sys.executable, str(path)]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """x [2, 3] → two operators → y."""
    onnx = pytest.importorskip("onnx")
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Sin", ["x"], ["h"]), helper.make_node("Cos", ["h"], ["y"])],
        "two",
        [helper.make_tensor_value_info("x", float32, [2, 3])],
        [helper.make_tensor_value_info("y", float32, [2, 3])],
    )
    path = tmp_path / "two.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_a_program_of_torch_is_recorded_without_a_change_to_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    command = [*program(tmp_path / "plain.py", TORCH), "--token", TOKEN]
    assert cli.main(["watch", "--with", "kineto", "--out", str(tmp_path / "out"), "--", *command]) == 0
    said = capfd.readouterr().out
    assert said.startswith(f"['--token', '{TOKEN}']")  # the program's own output
    explained = said.partition("kineto1.json.gz\n")[2]
    assert "plain.py --token '[redacted]'" in explained or "plain.py --token [redacted]" in explained
    assert TOKEN not in explained
    assert states(explained, "aten::addmm")
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    contents = [gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes() for p in written]
    assert not [content for content in contents if TOKEN.encode() in content]


def test_each_session_of_onnx_runtime_is_profiled(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    command = [*program(tmp_path / "plain.py", ONNX_RUNTIME), str(model), "2"]
    cases, code = watch.watch(watch.Asked(command))
    assert code == 0
    assert [case.names for case in cases] == [["ort_profile1.json.gz"], ["ort_profile2.json.gz"]]
    assert [facts(case.captures[0].ran[1])[:2] for case in cases] == [["4", "5"], ["4", "5"]]
    assert set(cases[0].rows["name"]) == {"model_run", "call", "Sin_0", "Cos_1"}
    assert "ort_profile: " in cases[0].watched[0]


def test_a_session_that_never_ran_leaves_the_answers_of_the_others(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    command = [*program(tmp_path / "plain.py", ONNX_RUNTIME), str(model), "1"]
    cases, _ = watch.watch(watch.Asked(command))
    assert facts(cases[0].captures[0].ran[1])[:2] == ["4", "5"]


def test_a_program_that_failed_before_it_ran_anything_is_said_to_have_failed(model: Path, tmp_path: Path) -> None:
    command = program(tmp_path / "failing.py", f"{ONNX_RUNTIME}\nsys.exit(3)\n")
    with pytest.raises(UserError, match="exited with 3"):
        watch.watch(watch.Asked([*command, str(model), "0"]))


def test_a_program_that_profiles_itself_does_so(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = """
import torch
from torch.profiler import ProfilerActivity, profile
x = torch.ones(9, 9) @ torch.ones(9, 9)
with profile(activities=[ProfilerActivity.CPU]) as own:
    torch.ones(9) + 1
assert "aten::add" in {event.key for event in own.key_averages()}
"""
    ((case,), code) = watch.watch(watch.Asked(program(tmp_path / "own.py", text), "kineto"))
    assert code == 0
    assert "aten::mm" in dict(parts_of(case)[2])  # type: ignore[index]


def test_the_users_own_sitecustomize_is_imported_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text("MARK = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "own"))
    command = program(tmp_path / "plain.py", "import sitecustomize\nassert sitecustomize.MARK\n")
    with pytest.raises(UserError, match=naming("nothing", "exited", "0")):
        watch.watch(watch.Asked(command))


@pytest.mark.parametrize("command", [["--"], ["--", "no-such-program"], ["--with", "perf", "--", sys.executable]])
def test_what_cannot_be_started_or_watched_is_said_in_one_line(command: list[str]) -> None:
    assert cli.main(["watch", *command]) == 2


def test_bare_runs_say_how_much_the_profiler_slows(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    text = f"from pathlib import Path\nwith Path(r'{tmp_path}/count').open('a') as f: f.write('x')\n{ONNX_RUNTIME}"
    command = [*program(tmp_path / "plain.py", text), str(model), "1"]
    (case, *_), _ = watch.watch(watch.Asked(command, bare=True))
    assert (tmp_path / "count").read_text() == "xxx"
    numbers = facts(case.watched[1])
    assert len([number for number in numbers if number.endswith(" s")]) >= 2


@pytest.mark.parametrize(
    ("watched", "bare", "verdict"),
    [(1.1, (1.0, 1.02), ["9 %", "slower"]), (1.01, (1.0, 1.02), ["no", "slower"]), (2.1, (1.0, 1.0), ["10 %"])],
)
def test_a_slow_down_is_more_than_two_bare_runs_differ(
    watched: float, bare: tuple[float, float], verdict: list[str]
) -> None:
    ran = watch.Ran(0, watched, 1.0 if watched > 2 else 0.0)
    assert states(watch.slowed(ran, [watch.Ran(0, seconds) for seconds in bare], "nsys"), *verdict)


def test_the_exit_code_of_the_program_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    command = program(tmp_path / "fails.py", "import torch\ntorch.ones(9).sum()\nraise SystemExit(3)\n")
    assert cli.main(["watch", "--with", "kineto", "--", *command]) == 1
    assert "exited with 3" in capsys.readouterr().out


def test_an_interrupt_ends_the_program_and_is_explained(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    ready = tmp_path / "ready"
    text = f"""{ONNX_RUNTIME}
import time
from pathlib import Path
Path(r"{ready}").touch()
time.sleep(60)
"""
    command = [*program(tmp_path / "serves.py", text), str(model), "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "inferprof", "watch", "--with", "ort_profile", "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert "ort_profile1.json" in said
    assert "was ended by SIGINT" in " ".join(said.split())


NSYS = """#!/bin/sh
# A stand-in for nsys: runs the program, and exports what was prepared.
command=$1; shift
while [ $# -gt 0 ]; do
    case $1 in --output=*) output=${1#--output=} ;; --*) ;; *) break ;; esac
    echo "$1" >>FLAGS
    shift
done
case $command in
profile) printf 'NVIDIA Tegra Profiler Report' >"$output"; exec "$@" ;;
export) cp EXPORT "$output" ;;
esac
"""


def test_nsys_watches_from_the_start_at_the_least_cost_and_is_scrubbed(
    export: Callable[..., Export], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = export(name="planted.sqlite")
    for number in range(3):
        begin = 1000 * number
        made.kernel(f"gemm_{TOKEN}", begin + 100, begin + 200, made.call("cudaLaunchKernel_v7000", begin, begin + 20))
    made._insert("TARGET_INFO_SYSTEM_ENV", "name value", name="HF_TOKEN", value=TOKEN)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nsys").write_text(NSYS.replace("EXPORT", str(made.done())).replace("FLAGS", str(tmp_path / "flags")))
    (folder / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    asked = watch.Asked(program(tmp_path / "plain.py", "print('ran')\n"), "nsys", graph_trace="graph")
    ((case,), code) = watch.watch(asked, tmp_path / "out")
    assert (code, case.names) == (0, ["watched.sqlite"])
    flags = (tmp_path / "flags").read_text().split()
    wanted = ["--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=graph"]
    assert [flag for flag in flags if flag in wanted] == wanted
    assert not [flag for flag in flags if flag.startswith("--capture-range")]
    kept = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert [path.name for path in kept] == ["watched.sqlite"]
    assert TOKEN.encode() not in kept[0].read_bytes()
    kernels = case.rows[case.rows["level"].eq("kernel") & case.rows["metric"].eq("duration_total")]
    assert kernels["value"].sum() == 300


def test_without_nsys_it_says_what_else_there_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=naming("nsys", "not", "PATH", "kineto", "ort_profile")):
        watch.watch(watch.Asked([sys.executable, "-c", "pass"], "nsys"))
