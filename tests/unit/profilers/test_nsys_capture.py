"""What nsys is asked to do, and that nothing secret is left in what is kept of it."""

from __future__ import annotations

import dataclasses
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.conftest import Export
from tests.unit.facts import naming

from inferprof import profilers, registry, secret
from inferprof.case import Case
from inferprof.errors import ToolError, UserError
from inferprof.machine.hardware import Gpu, Machine
from inferprof.profilers import capturing, nsys, nsys_scrub

TOKEN = "ghp_PLANTEDplantedPLANTED0123456789"
NSYS_SCRIPT = """#!/bin/sh
# A stand-in for nsys: writes what the real one would, with its own environment in all of it.
for argument; do case $argument in --output=*) output=${argument#--output=} ;; esac; done
case $1 in
profile) { printf 'NVIDIA Tegra Profiler Report '; env; } > "$output" ;;
export) cp EXPORT "$output" ;;
stats)
    for report in cuda_gpu_kern_sum cuda_api_sum; do
        echo "Name\nTOKEN /scratch/someone/x.cu" > "${output}_$report.csv"
    done
    ;;
esac
"""


@pytest.fixture
def on_path(tmp_path: Path, export: Callable[..., Export], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, first on PATH, with an nsys whose export holds TOKEN wherever nsys keeps such things."""
    made = export(name="planted.sqlite")
    made.kernel(f"void gemm<{TOKEN}>()", 100, 200, made.call("cudaLaunchKernel_v7000", 10, 20))
    made.range(f"load /scratch/someone/{TOKEN}.onnx", 0, 300)
    made.range("/encoder/layer.0/MatMul", 5, 50)
    made.string(f"PATH=/usr/bin\0HF_TOKEN={TOKEN}\0")
    for table, columns in (
        ("META_DATA_CAPTURE", "name value"),
        ("TARGET_INFO_SYSTEM_ENV", "name value"),
        ("ProcessStreams", "contentId text"),
        ("PROCESSES", "pid name"),
    ):
        made._insert(table, columns, **dict.fromkeys(columns.split(), f"HF_TOKEN={TOKEN}"))
    made._insert("META_DATA_EXPORT", "name value", name="EXPORT_HOST", value="a-host")
    made._insert("TARGET_INFO_GPU", "id name uuid", id=0, name="NVIDIA H100", uuid="GPU-1234")
    planted = made.done()
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "nsys"
    script.write_text(NSYS_SCRIPT.replace("EXPORT", str(planted)).replace("TOKEN", TOKEN))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return folder


def test_a_planted_token_is_in_no_output(on_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "b8.sqlite"
    nsys.capture(["true"], out)
    written = sorted(path.name for path in out.parent.iterdir())
    assert written == ["b8.nsys-rep", "b8.sqlite", "b8_cuda_api_sum.csv", "b8_cuda_gpu_kern_sum.csv"]
    for path in out.parent.iterdir():
        assert TOKEN.encode() not in path.read_bytes(), path
        if path.suffix != ".nsys-rep":
            assert b"/scratch/someone" not in path.read_bytes(), path
            assert b"a-host" not in path.read_bytes(), path
            assert b"GPU-1234" not in path.read_bytes(), path


def test_the_scrubbed_export_still_reads_and_keeps_names_that_only_look_like_paths(
    on_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "b8.sqlite"
    nsys.capture(["true"], out)
    frame = nsys.read(out)
    kernels = frame[(frame["level"] == "kernel") & (frame["metric"] == "duration_total")]
    assert kernels[["name", "value"]].to_numpy().tolist() == [["void gemm<[redacted]>()", 100.0]]
    names = frame.loc[frame["level"] == "range", ["name", "range"]].drop_duplicates().to_numpy().tolist()
    assert ["/encoder/layer.0/MatMul", "load [redacted]"] in names


def test_the_report_is_for_its_owner_only(on_path: Path, tmp_path: Path) -> None:
    nsys.capture(["true"], tmp_path / "b8.sqlite")
    assert stat.S_IMODE((tmp_path / "b8.nsys-rep").stat().st_mode) == 0o600


def test_the_run_keeps_what_it_needs_of_the_environment_and_no_more() -> None:
    environment = {
        "PATH": "/bin",
        "LD_LIBRARY_PATH": "/lib",
        "CUDA_VISIBLE_DEVICES": "1",
        "LC_ALL": "C",
        "PYTHONPATH": "x",
        "HF_HOME": "/cache",
        "CXX": "/opt/gcc/bin/g++",
        "INFERPROF_PLUGINS": "/plugins/slow.py",
        "HF_TOKEN": TOKEN,
        "TORCH_API_KEY": TOKEN,
        "AWS_SECRET_ACCESS_KEY": TOKEN,
        "MY_OWN": "1",
    }
    assert set(capturing.allowed_environment(environment)) == {
        "PATH",
        "LD_LIBRARY_PATH",
        "CUDA_VISIBLE_DEVICES",
        "LC_ALL",
        "PYTHONPATH",
        "HF_HOME",
        "CXX",
        "INFERPROF_PLUGINS",
    }


def test_the_command_captures_the_iterations_and_lets_the_run_end(on_path: Path) -> None:
    assert nsys.command(["inferprof", "run"], Path("c/b8.sqlite")) == [
        str(on_path / "nsys"),
        "profile",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--cuda-graph-trace=node",
        "--force-overwrite=true",
        "--output=c/b8.nsys-rep",
        "inferprof",
        "run",
    ]


def test_options_add_traces(on_path: Path) -> None:
    options = nsys.Options(libraries=("osrt", "cudnn"), gpu_metrics=True, graph_trace="graph")
    command = nsys.command(["run"], Path("x.sqlite"), options)
    assert "--trace=cuda,nvtx,osrt,cudnn" in command
    assert "--cuda-graph-trace=graph" in command
    assert "--gpu-metrics-devices=cuda-visible" in command


def test_a_run_that_fails_shows_its_command_and_log_and_leaves_nothing(on_path: Path, tmp_path: Path) -> None:
    (on_path / "nsys").write_text("#!/bin/sh\necho out of memory\nexit 3\n")
    out = tmp_path / "out" / "b8.sqlite"
    with pytest.raises(ToolError, match=naming("nsys profile", "exited with 3", "out of memory")):
        profilers.capture(registry.profilers()["nsys"], ["true"], out)
    assert list(out.parent.iterdir()) == []


def test_a_run_that_never_reaches_its_range_says_so(on_path: Path, tmp_path: Path) -> None:
    (on_path / "nsys").write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(ToolError, match=naming("never reached", "range")):
        nsys.capture(["true"], tmp_path / "b8.sqlite")


def test_without_nsys_the_user_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=naming("nsys", "not", "PATH")):
        nsys.capture(["true"], tmp_path / "b8.sqlite")


def test_scrubbing_refuses_to_keep_a_secret_that_it_cannot_remove(export: Callable[..., Export]) -> None:
    made = export()
    made.call("cudaFree", 1, 2)
    made._insert(f"ENUM_{TOKEN}", "id name", id=0, name="a table's name is no text in it")
    with pytest.raises(nsys_scrub.SecretFound):
        nsys_scrub.scrub(made.done(), [TOKEN])


def test_a_user_id_without_a_name_and_a_home_is_no_end_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless(*_: object) -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("getpass.getuser", nameless)
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr("socket.gethostname", lambda: "box-of-somebody")
    assert "box-of-somebody" in nsys.secrets()


def test_short_values_are_no_secrets() -> None:
    assert secret.values({"A": "1", "TERM": "xterm", "KEY": TOKEN}, "vm", "alice") == [TOKEN, "alice"]


def test_scrubbing_changes_no_row_of_the_table(captured: Callable[[str], Path], tmp_path: Path) -> None:
    scrubbed = tmp_path / "again.sqlite"
    shutil.copy(captured("h100_tensorrt_vit2"), scrubbed)
    nsys_scrub.scrub(scrubbed, ["a secret of no kernel"])
    pd.testing.assert_frame_equal(nsys.read(scrubbed), nsys.read(captured("h100_tensorrt_vit2")))


H100 = Machine(Gpu("NVIDIA H100", (9, 0), None, "GPU-1", "580.1"), tools={"nsys": "/usr/bin/nsys"})


@pytest.mark.parametrize(
    ("backend", "machine", "reason"),
    [
        ("ort_cuda", H100, None),
        ("ort_cpu", H100, "nsys: ort_cpu runs on the CPU"),
        ("ort_cuda", dataclasses.replace(H100, gpu=None), "nsys: no GPU on this machine"),
        ("ort_cuda", dataclasses.replace(H100, tools={}), "nsys: not on PATH; install Nsight Systems"),
    ],
)
def test_what_cannot_be_captured_is_refused_with_the_reason(
    backend: str, machine: Machine, reason: str | None
) -> None:
    assert nsys.NSYS.refuses(Case("vit", "fp16", backend, "default", "b8"), machine) == reason
