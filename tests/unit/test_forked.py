"""A job of a study is a fork of a server that has imported its libraries: same end, same words."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inferprof import forked

CLIENT = [sys.executable, "-c", "import sys; from inferprof.cli import main; sys.exit(main())"]
PLUGIN = """
import os, sys, time
from pathlib import Path
from inferprof import forked
out = Path(os.environ["OUT"])
who = os.getpid(), len(forked.imported), os.environ.get("OF_JOB"), Path.cwd()
(out / f"{time.monotonic_ns()}").write_text(" ".join(map(str, who)))
if "HANG" in os.environ:
    time.sleep(60)
"""
SLOW_S = 60.0
"""On a machine whose cores others use: pandas and SciPy are imported."""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a study, whose jobs run in `tmp_path` and note who they are."""
    (tmp_path / "plugin.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "notes").mkdir()
    with subprocess.Popen(["sleep", "300"]) as process:
        for name, value in {
            forked.STUDY: f"{process.pid}-{tmp_path.name}{time.monotonic_ns()}",
            forked.LIMIT: "120",
            "INFERPROF_PLUGINS": str(tmp_path / "plugin.py"),
            "OUT": str(tmp_path / "notes"),
        }.items():
            monkeypatch.setenv(name, value)
        yield process
        process.kill()


def job(folder: Path, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A job, run to its end."""
    return subprocess.run(
        [*CLIENT, *argv], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def notes(folder: Path) -> list[list[str]]:
    """What each job noted: process id, imported modules, a variable, its folder."""
    return [path.read_text("utf-8").split() for path in sorted((folder / "notes").iterdir())]


def until(condition: Callable[[], object]) -> bool:
    """Whether it comes true in time."""
    deadline = time.monotonic() + SLOW_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(condition())


def alive(process: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text("utf-8")
    except OSError:
        return False


def servers(study: subprocess.Popen[bytes]) -> list[int]:
    """The servers of a study, and what they forked."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if forked.START.encode() in words and str(study.pid).encode() in words and alive(int(path.parent.name)):
            found.append(int(path.parent.name))
    return found


def test_a_job_is_a_fork_in_its_own_folder_and_environment_that_ends_as_it_would_alone(
    study: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    alone = job(tmp_path, "table", "nsys", "missing.sqlite", "--out", "x", **{forked.STUDY: ""})
    first = job(tmp_path, "table", "nsys", "missing.sqlite", "--out", "x", PWD="1")
    second = job(tmp_path / "elsewhere", "table", "nsys", "missing.sqlite", "--out", "x", PWD="2")
    ends = [
        (end.returncode, [line for line in end.stderr.splitlines() if "libraries" not in line])
        for end in (alone, first, second)
    ]
    assert ends[0] == ends[1] == ends[2] and ends[0][1]
    (_, none, _, _), (one, imported, _, here), (two, _, _, there) = notes(tmp_path)
    assert none == "0" and int(imported) > 3 and one != two
    assert (Path(here), Path(there)) == (tmp_path, tmp_path / "elsewhere")


def test_a_job_whose_server_is_not_ready_says_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(forked, "SAID_S", 0.0)
    mine, server = socket.socketpair()
    with mine, server:
        with forked._said_while(mine):
            assert forked.IMPORTING in capsys.readouterr().err
        assert capsys.readouterr().err
        server.sendall(b"1\n")
        with forked._said_while(mine):
            assert not capsys.readouterr().err


def test_a_job_of_another_environment_has_another_server(study: subprocess.Popen[bytes], tmp_path: Path) -> None:
    for threads in ("1", "2", "2"):
        job(tmp_path, "cases", "--config", "missing.yaml", "--out", "x", OMP_NUM_THREADS=threads, OF_JOB=threads)
    assert [note[2] for note in notes(tmp_path)] == ["1", "2", "2"]
    assert len(servers(study)) == 2


def test_a_server_that_was_started_ahead_serves_the_job_that_it_was_started_for(
    study: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    ahead = "from inferprof import forked; forked.start_ahead([['cases'], ['table', 'nsys'], ['verify']])"
    of_verb = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # which each verb sets
    subprocess.run([sys.executable, "-c", ahead], env=of_verb, check=True)
    assert until(lambda: len(servers(study)) == 1) and not notes(tmp_path)
    (server,) = servers(study)
    job(tmp_path, "cases", "--config", "missing.yaml", "--out", "x")
    assert until(lambda: servers(study) == [server])
    assert int(notes(tmp_path)[0][1]) > 3


def test_servers_and_jobs_end_with_the_study(study: subprocess.Popen[bytes], tmp_path: Path) -> None:
    client = subprocess.Popen([*CLIENT, "cases", "--config", "x", "--out", "x"], env={**os.environ, "HANG": "1"})
    assert until(lambda: notes(tmp_path))
    study.send_signal(signal.SIGKILL)
    study.wait()
    assert client.wait(SLOW_S) == 1
    assert until(lambda: not servers(study))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_ends_with_its_client_and_the_server_goes_on(
    number: signal.Signals, study: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    client = subprocess.Popen([*CLIENT, "cases", "--config", "x", "--out", "x"], env={**os.environ, "HANG": "1"})
    assert until(lambda: notes(tmp_path))
    client.send_signal(number)
    client.wait(SLOW_S)
    assert until(lambda: not alive(int(notes(tmp_path)[0][0])))
    assert until(lambda: len(servers(study)) == 1)


@pytest.mark.parametrize(
    ("words", "group"),
    [
        ("audit x.onnx", ("prepare",)),
        ("verify", None),
        ("run ort_cuda a.onnx --round 2 --out x", ("run", "ort_cuda", "2", "measured")),
        ("run ort_cuda a.onnx --round 7001 --only call", ("run", "ort_cuda", "duel1750", "measured")),
        ("run ort_cuda a.onnx --round 7004 --only call", ("run", "ort_cuda", "duel1750", "measured")),
        ("run ort_cuda a.onnx --round 7005 --only call", ("run", "ort_cuda", "duel1751", "measured")),
        ("run ort_cuda a.onnx --round 7005 --only call --quiet-core", ("run", "ort_cuda", "chosen by", "measured")),
        ("run ort_cuda a.onnx --profiled 10", ("run", "ort_cuda", "0", "profiled")),
        ("run ort_cuda a.onnx --profiled 10 --kineto x", ("run", "ort_cuda", "0", "recorded")),
    ],
)
def test_runs_of_one_runtime_and_round_share_a_server(words: str, group: tuple[str, ...] | None) -> None:
    assert forked.group_of(words.split()) == group


def test_related_runtimes_of_a_study_share_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(forked.RUNTIMES, "ort_cpu tensorrt torch_compile torch_eager")
    eager, compiled, ort = (
        forked.group_of(["run", name, "x"]) for name in ("torch_eager", "torch_compile", "ort_cuda")
    )
    assert eager == compiled == ("run", "torch_compile+torch_eager", "0", "measured")
    assert ort == ("run", "ort_cpu+ort_cuda", "0", "measured")


TOOL = """#!/bin/sh
# A stand-in for nsys: its variables reach what it starts; SEES says of which runs it writes a capture.
out=$1; shift
CUDA_INJECTION64_PATH=of-the-tool "$@"
case SEES$INFERPROF_SERVER in all*|alone) : > "$out" ;; esac
"""


CAPTURE = """
import dataclasses
from pathlib import Path
from inferprof import profilers
from inferprof.profilers.kineto import KINETO
tool = dataclasses.replace(KINETO, finish=None, command=lambda argv, out: ["sh", "tool.sh", str(out), *argv])
run = "inferprof run ort_cpu missing.onnx --spec x --precision fp32 --shape b1 --variant x --profiled 1 --out r"
profilers.capture(tool, run.split(), Path("seen"))
"""


@pytest.fixture
def watched(study: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Captures a run of the study with a tool that sees `all` runs, or those that it started `alone`."""
    for name, value in (("INFERPROF_PLUGINS", "plugin.py"), ("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")):
        monkeypatch.setenv(name, value)
    plugin = PLUGIN.replace('os.environ["OUT"]', repr(str(tmp_path / "notes"))).replace(
        "OF_JOB", "CUDA_INJECTION64_PATH"
    )
    (tmp_path / "plugin.py").write_text(plugin, encoding="utf-8")
    (tmp_path / ".snakemake").mkdir()

    def capture(sees: str) -> None:
        (tmp_path / "tool.sh").write_text(TOOL.replace("SEES", sees), encoding="utf-8")
        subprocess.run([sys.executable, "-c", CAPTURE], cwd=tmp_path, check=True)

    return capture


def test_a_run_under_a_profiler_is_a_fork_with_the_profilers_variables(
    watched: Callable[[str], None], tmp_path: Path
) -> None:
    watched("all")
    watched("all")
    (one, imported, injected, folder), (two, again, _, _) = notes(tmp_path)
    assert one != two and int(imported) > 3 and imported == again
    assert (injected, Path(folder)) == ("of-the-tool", tmp_path)


def test_where_a_profiler_does_not_see_forks_the_study_has_it_start_each_run(
    watched: Callable[[str], None], tmp_path: Path
) -> None:
    watched("alone")
    watched("alone")
    assert [int(imported) > 0 for _, imported, _, _ in notes(tmp_path)] == [True, False, False]


LONG_JOB = """
import os, signal, socket, sys, time
from inferprof import fork_server
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
fork_server.IDLE_S = 0.1
if os.fork() == 0:
    time.sleep(1.5)
    os._exit(0)
begun = time.monotonic()
listener, study = socket.socket(), os.pipe()[0]
listener.bind(("127.0.0.1", 0))
listener.listen()
real, os._exit = os._exit, lambda code: (print(time.monotonic() - begun, flush=True), real(code))
fork_server._serve(listener, study, True)
"""


def test_a_server_that_nobody_asks_lasts_as_long_as_its_longest_job() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LONG_JOB], capture_output=True, text=True, check=True, timeout=SLOW_S
    )
    assert 1.4 < float(done.stdout) < 10
