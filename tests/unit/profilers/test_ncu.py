"""What Nsight Compute is asked to do, and what becomes of it when it refuses. By a stand-in for ncu on PATH."""

from __future__ import annotations

import json
import lzma
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.facts import facts, naming

from inferprof import cli, outcomes, profilers, registry
from inferprof.case import Case
from inferprof.errors import ToolError, UserError
from inferprof.machine import hardware
from inferprof.machine.hardware import Gpu, Machine
from inferprof.profilers import capturing, ncu, nsys
from inferprof.profilers.ncu import Focus, Options, refusal

CASE = Case("vit", "fp16", "ort_cuda", "default", "b8")
GPU = Gpu("NVIDIA H100", (9, 0), 80 << 30, "GPU-1", "580.1")
NOT_PERMITTED = """==PROF== Connected to process 113001 (/usr/bin/python3)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target
==PROF== Disconnected from process 113001
==WARNING== No kernels were profiled.
"""
HELD = """==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM)
==ERROR== Failed to profile "gemm" in process 7
"""
NOT_REPLAYED = """==PROF== Profiling "cooperative_reduce" - 0: 0%
==ERROR== An error was reported by the driver

==ERROR== LaunchFailed
==ERROR== Failed to profile "cooperative_reduce" in process 2119298
==PROF== Trying to shutdown target application
==ERROR== The application returned an error code (9).
==WARNING== No kernels were profiled.
"""
NOTHING = (
    "==PROF== Connected to process 7\n==PROF== Disconnected from process 7\n==WARNING== No kernels were profiled.\n"
)
CRASHED = "Traceback\n==ERROR== The application returned an error code (1).\n==WARNING== No kernels were profiled.\n"


@pytest.fixture
def ncu_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """(shell lines) → a file that holds the arguments of each call of an ncu which is first on PATH."""
    folder, calls = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()

    def make(body: str) -> Path:
        script = folder / "ncu"
        script.write_text(
            "#!/bin/sh\n"
            f'for argument; do printf "%s\\t" "$argument" >> {calls}; done; echo >> {calls}\n'
            "for argument; do case $argument in --export=*) out=${argument#--export=} ;; esac; done\n"
            f"{body}\n"
        )
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        return calls

    return make


@pytest.fixture
def table(captured: Callable[[str], Path], tmp_path: Path) -> Path:
    """The timeline's table of a real run of ONNX Runtime."""
    path = tmp_path / "timeline.parquet"
    nsys.read(captured("h100_ort_cuda_graph_vit_tiny")).to_parquet(path)
    return path


def asked(calls: Path) -> list[list[str]]:
    """The arguments of each call."""
    return [line.split("\t")[:-1] for line in calls.read_text().splitlines()]


# --- the command -----------------------------------------------------------------------------------------------


def test_the_command_leaves_the_clocks_alone_and_looks_into_the_kernels_of_graphs(
    ncu_on_path: Callable[..., Path],
) -> None:
    ncu_on_path("")
    command = ncu.command(["inferprof", "run"], Path("c/b8.ncu-rep"))
    assert command[-2:] == ["inferprof", "run"]
    assert {"--clock-control=none", "--cache-control=all", "--graph-profiling=node"} <= set(command)
    assert "--export=c/b8.ncu-rep" in command
    (sections,) = (part for part in command if part.startswith("--section="))
    expression = sections.removeprefix("--section=regex:")
    assert re.fullmatch(expression, "SpeedOfLight") and re.fullmatch(expression, "SourceCounters")
    assert not re.search(expression, "PmSampling")


def test_locked_clocks_are_an_option(ncu_on_path: Callable[..., Path]) -> None:
    ncu_on_path("")
    assert "--clock-control=base" in ncu.command(["true"], Path("b8.ncu-rep"), Options(clock_control="base"))


def test_one_launch_of_each_kernel_and_grid_inside_an_iteration(ncu_on_path: Callable[..., Path]) -> None:
    ncu_on_path("")
    focus = Focus(("_Z4gemmPf", "_Z$1"), "mangled", window=True)
    command = ncu.command(["true"], Path("b8.ncu-rep"), Options(focus=focus))
    filters = command[command.index("--profile-from-start=off") : -1]
    assert filters == [
        "--profile-from-start=off",
        "--nvtx-include=iteration/",
        "--kernel-name-base=mangled",
        "--filter-mode=per-launch-config",
        r"--kernel-id=::regex:^(_Z4gemmPf|_Z\$1)$:1",
    ]


def test_without_a_timeline_every_kernel_of_the_run_is_looked_into_once(ncu_on_path: Callable[..., Path]) -> None:
    ncu_on_path("")
    command = ncu.command(["true"], Path("b8.ncu-rep"))
    assert command[-2] == "--kernel-id=:::1"
    assert "--profile-from-start=off" not in command


def test_the_timeline_names_the_kernels(table: Path, ncu_on_path: Callable[..., Path]) -> None:
    ncu_on_path("")
    aimed = capturing.aimed(registry.profilers()["ncu"], table)
    (chosen,) = (part for part in aimed.command(["true"], Path("x")) if part.startswith("--kernel-id="))
    names = chosen.removeprefix("--kernel-id=::regex:^(").removesuffix(")$:1").split("|")
    assert names[0] == "nvjet_sm90_hsh_64x64_64x13_1x4_h_bz_NNT"
    assert len(names) == 8
    assert all(":" not in name for name in names)  # which divides the parts of an identifier


def test_names_without_symbols_are_those_of_functions(table: Path) -> None:
    frame = pd.read_parquet(table)
    frame[frame["level"] != "launch_config"].to_parquet(table)
    command = ncu.aim(table).command
    options = command.keywords["options"]  # type: ignore[attr-defined]
    assert options.focus.base == "function"
    assert options.focus.names[:2] == ("nvjet_sm90_hsh_64x64_64x13_1x4_h_bz_NNT", "cuApplyLayerNorm")


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.parquet"):
        ncu.aim(tmp_path / "nothing.parquet")


def test_a_profiler_that_watches_everything_takes_no_timeline(table: Path) -> None:
    with pytest.raises(UserError, match=naming("nsys", "all", "run")):
        capturing.aimed(registry.profilers()["nsys"], table)


# --- the capture -----------------------------------------------------------------------------------------------


def test_the_report_is_for_its_owner_and_how_it_was_taken_lies_beside_it(
    table: Path, ncu_on_path: Callable[..., Path], tmp_path: Path
) -> None:
    calls = ncu_on_path('printf "NVR" > "$out"')
    out = tmp_path / "out" / "b8.ncu-rep"
    assert not cli.main(["capture", "ncu", "--timeline", str(table), "--out", str(out), "--", "true"])
    assert len(asked(calls)) == 1
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    settings = json.loads(out.with_suffix(".settings.json").read_text())
    assert (settings["clock_control"], settings["cache_control"]) == ("none", "all")
    assert settings["selection"] == "invocation"
    assert settings["share"] == pytest.approx(0.842, abs=1e-3)
    assert len(settings["kernels"]) == 8


def test_where_counting_invocations_sees_nothing_launch_configurations_are_counted(
    table: Path, ncu_on_path: Callable[..., Path], tmp_path: Path
) -> None:
    calls = ncu_on_path(
        f'case "$*" in *--launch-count=1*) printf "NVR" > "$out" ;; *) cat <<END\n{NOTHING}END\n ;; esac'
    )
    out = tmp_path / "b8.ncu-rep"
    profilers.capture(capturing.aimed(registry.profilers()["ncu"], table), ["true"], out)
    first, second = asked(calls)
    assert any(part.startswith("--kernel-id=") for part in first)
    assert "--launch-count=1" in second
    assert not any(part.startswith(("--kernel-id=", "--nvtx-include=")) for part in second)
    assert json.loads(out.with_suffix(".settings.json").read_text())["selection"] == "count"


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (NOT_PERMITTED, f"ncu: {hardware.NOT_PERMITTED}"),
        (HELD, "ncu: the counters are held by another tool: pause DCGM"),
        (
            NOT_REPLAYED,
            "ncu: the kernel cooperative_reduce cannot be replayed (LaunchFailed): leave the case to nsys",
        ),
        (NOTHING, "ncu: it saw none of the kernels"),
    ],
)
def test_a_refusal_is_a_result_and_not_a_broken_job(
    log: str, reason: str, table: Path, ncu_on_path: Callable[..., Path], tmp_path: Path
) -> None:
    ncu_on_path(f"cat <<'END'\n{log}END\nexit 9")
    out, record = tmp_path / "capture/ncu/vit/fp16/ort_cuda/default/b8.ncu-rep", tmp_path / "b8.record.json"
    flags = ["--timeline", str(table), "--out", str(out), "--record", str(record)]
    assert cli.main(["capture", "ncu", *flags, "--", "true"]) == outcomes.FAILED
    assert json.loads(record.read_text())["reason"].startswith(reason)
    (row,) = profilers.read(ncu.NCU, out).to_dict("records")
    assert (row["level"], row["metric"]) == ("run", "not_measured")
    assert row["text"].startswith(reason)
    assert "\n" not in row["text"]


def test_the_record_of_a_run_that_ended_well_is_left_alone(
    table: Path, ncu_on_path: Callable[..., Path], tmp_path: Path
) -> None:
    record = tmp_path / "b8.record.json"
    ncu_on_path(f"echo '{{}}' > {record}; cat <<'END'\n{NOT_PERMITTED}END\n")
    profilers.capture_or_reason(registry.profilers()["ncu"], ["true"], tmp_path / "b8.ncu-rep", table, record)
    assert json.loads(record.read_text()) == {}


def test_a_run_that_crashes_under_ncu_is_a_broken_job(
    table: Path, ncu_on_path: Callable[..., Path], tmp_path: Path
) -> None:
    ncu_on_path(f"cat <<'END'\n{CRASHED}END\nexit 1")
    with pytest.raises(ToolError, match="returned an error code"):
        profilers.capture(capturing.aimed(registry.profilers()["ncu"], table), ["true"], tmp_path / "b8.ncu-rep")
    assert list(tmp_path.glob("b8*")) == []


def test_a_timeline_without_single_kernels_is_a_result_too(
    table: Path, ncu_on_path: Callable[..., Path], tmp_path: Path
) -> None:
    calls = ncu_on_path("")
    frame = pd.read_parquet(table)
    frame[frame["level"] != "kernel"].to_parquet(table)
    out = tmp_path / "b8.ncu-rep"
    assert cli.main(["capture", "ncu", "--timeline", str(table), "--out", str(out), "--", "true"]) == outcomes.FAILED
    assert [facts(text, "node", "timeline") for text in profilers.read(ncu.NCU, out)["text"].tolist()] == [
        ["ncu", "timeline", "no", "kernels", "one", "one", "CUDA", "node"]
    ]
    assert not calls.exists()


def test_what_ncu_prints_of_a_good_run_is_no_refusal() -> None:
    assert (
        refusal('==PROF== Profiling "gemm" - 0: 0%....50%....100% - 38 passes\n==PROF== Report: b8.ncu-rep\n') is None
    )


# --- before anything runs --------------------------------------------------------------------------------------


def test_a_machine_without_counters_or_ncu_is_refused_by_name() -> None:
    tools = {"nsys": "/opt/nsys", "ncu": "/opt/ncu"}
    assert ncu.refuses(CASE, Machine(gpu=GPU, tools=tools)) is None
    assert facts(ncu.refuses(CASE, Machine(gpu=None, tools=tools))) == ["ncu", "no", "GPU"]
    assert facts(ncu.refuses(CASE, Machine(gpu=GPU))) == ["ncu", "not", "PATH", "Nsight", "Compute"]
    refused = ncu.refuses(CASE, Machine(gpu=GPU, tools=tools, no_counters=hardware.NOT_PERMITTED))
    assert refused == f"ncu: {hardware.NOT_PERMITTED}"


def test_ncu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=naming("ncu", "not", "PATH")):
        ncu.command(["true"], Path("b8.ncu-rep"))


# --- reading ---------------------------------------------------------------------------------------------------


def test_a_csv_is_read_with_the_settings_beside_it(repository: Path, tmp_path: Path) -> None:
    path = tmp_path / "b8.csv.gz"
    path.write_bytes((repository / "tests/data/ncu/h100_ort_cuda_vit_raw.csv.gz").read_bytes())
    bare = ncu.read(path)
    assert set(bare["level"]) == {"kernel"}
    settings = {"clock_control": "none", "cache_control": "all", "bytes": 7, "share": 0.81}
    kernels = [
        {"name": "nvjet_sm90_hsh_128x72_64x8_1x2_h_bz_NNT", "symbols": []},
        {"name": "void other::spelling::cuApplyLayerNorm<false>(int)", "symbols": []},
        {"name": "softmax", "symbols": ["_Z7softmaxPf"]},
    ]
    path.with_suffix(".settings.json").write_text(json.dumps({**settings, "kernels": kernels}))
    rows = ncu.read(path).query("level == 'run'").set_index("metric")
    assert rows["text"].dropna().to_dict() == {
        "clock_control": "none",
        "cache_control": "all",
        "not_counted": "softmax",
    }
    assert rows["value"].dropna().to_dict() == {"kernel_time_chosen": 81.0, "report_bytes": 7.0}


def test_a_text_page_is_read_as_a_table_of_its_launches(shared: Path) -> None:
    rows = ncu.read(shared / "real/ncu_csv/ncu_cli_text_openmp_nvhpc.txt")
    assert rows.loc[rows["metric"] == "duration_total", "value"].tolist() == [43.15e6, 46.93e6, 1.95e6, 14e6]


def test_another_tools_capture_names_its_reader(captured: Callable[[str], Path]) -> None:
    with pytest.raises(UserError, match="inferprof table nsys"):
        ncu.read(captured("h100_torch_eager"))


def test_a_capture_becomes_a_table_of_its_case(
    table: Path, ncu_on_path: Callable[..., Path], repository: Path, tmp_path: Path
) -> None:
    """From the verb `capture` to the verb `table`, with a real report in place of what ncu would write."""
    pytest.importorskip("ncu_report")
    report = tmp_path / "real.ncu-rep"
    report.write_bytes(lzma.decompress((repository / "tests/data/ncu/manual_nvtx.ncu-rep.xz").read_bytes()))
    ncu_on_path(f'cp {report} "$out"')
    out = tmp_path / f"box/capture/ncu/{CASE}.ncu-rep"
    assert not cli.main(["capture", "ncu", "--timeline", str(table), "--out", str(out), "--", "true"])
    assert not cli.main(["table", "ncu", str(out), "--machine", "box", "--out", str(tmp_path / "b8.parquet")])
    frame = pd.read_parquet(tmp_path / "b8.parquet")
    assert set(frame["shape"]) == {"b8"} and set(frame["tool"]) == {"ncu"}
    durations = frame[(frame["level"] == "kernel") & (frame["metric"] == "duration_total")]
    assert durations[["launch", "value"]].to_numpy().tolist() == [[0, 84480], [1, 249216], [2, 88512]]
    lacking = frame[frame["metric"] == "not_counted"]["text"].tolist()
    assert len(lacking) == 8 and "nvjet_sm90_hsh_64x64_64x13_1x4_h_bz_NNT" in lacking
