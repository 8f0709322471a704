"""trtexec: the command to the last switch, real files of TensorRT 7 to 10, and when nothing is compared."""

from __future__ import annotations

import gzip
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import facts, naming, states
from tests.unit.made_records import made

from inferprof import cli, trtexec
from inferprof.errors import ToolError, UserError
from inferprof.machine import hardware
from inferprof.model.model_spec import InputSpec, ModelSpec
from inferprof.readers import trtexec_log
from inferprof.trtexec import Log, Tool

BANNER = "&&&& RUNNING TensorRT.trtexec [TensorRT v{}] [b11] # trtexec\n"
COMMON = [
    "--exposeDMA",
    "--infStreams=1",
    "--useProfile=0",
    "--device=0",
    "--allocationStrategy=static",
    "--persistentCacheRatio=0",
    "--sleepTime=0",
    "--idleTime=0",
    "--warmUp=1000",
    "--duration=3",
    "--iterations=100",
    "--avgRuns=100",
    "--percentile=90,95,99",
]
LOG = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v{version}] [b11] # trtexec
[07/07/2026-02:11:26] [I] === Inference Options ===
[07/07/2026-02:11:26] [I] Sleep time: 0ms
[07/07/2026-02:11:26] [I] Idle time: 0ms
[07/07/2026-02:11:26] [I] Inference Streams: 1
[07/07/2026-02:11:26] [I] ExposeDMA: Enabled
[07/07/2026-02:11:26] [I] Data transfers: Disabled
[07/07/2026-02:11:26] [I] Spin-wait: Enabled
[07/07/2026-02:11:26] [I] Multithreading: Disabled
[07/07/2026-02:11:26] [I] CUDA Graph: {graph}
[07/07/2026-02:11:26] [I] Persistent Cache Ratio: 0
[07/07/2026-02:11:26] [I] Optimization Profile Index: 0
[07/07/2026-02:11:26] [I] Inputs:
[07/07/2026-02:11:26] [I] === Reporting Options ===
{warning}[07/07/2026-02:11:29] [I] === Performance summary ===
[07/07/2026-02:11:29] [I] Throughput: 990.5 qps
[07/07/2026-02:11:29] [I] GPU Compute Time: min = 0.9 ms, max = 1.1 ms, mean = 1 ms, median = 1 ms
&&&& PASSED TensorRT.trtexec [TensorRT v{version}] [b11] # trtexec
"""
"""A log as 10.16.1 writes it, cut to what is read."""


@pytest.fixture
def spec(tmp_path: Path) -> ModelSpec:
    return ModelSpec("toy", tmp_path / "toy.yaml", "onnx", (InputSpec("x", "float32", ("b", 3)),))


@pytest.fixture
def record() -> dict[str, Any]:
    case = {"model": "toy", "precision": "fp16", "backend": "tensorrt", "variant": "default", "shape": "b8"}
    device = {"samples_ns": [980_000 + index % 3 * 10_000 for index in range(60)]}
    return {
        "schema": 1,
        "case": case,
        "machine": "box",
        "environment": {},
        "started": "2026-01-01T00:00:00+00:00",
        "round": 0,
        "status": "ok",
        "reason": None,
        "boundaries": {"device": device},
        "protocol": {"graph": False},
    }


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[trtexec.Runner, list[Sequence[str]]]]:
    """A trtexec that writes the times that it is given, and the commands that it was called with."""
    monkeypatch.setattr("shutil.which", lambda _: "/opt/trtexec")
    monkeypatch.setattr(hardware, "detect_gpu", lambda index=0: None)

    def make(
        version: int = 101601, *, times_ms: Sequence[float] = (1.0,) * 60, returncode: int = 0, **log: str
    ) -> Any:
        commands: list[Sequence[str]] = []

        def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
            commands.append(command)
            if command[1:] == ["--help"]:
                return subprocess.CompletedProcess(command, 0, BANNER.format(version))
            Path(command[-1].removeprefix("--exportTimes=")).write_text(
                json.dumps([{"computeMs": value} for value in times_ms]), encoding="utf-8"
            )
            text = LOG.format(version=version, **{"graph": "Disabled", "warning": "", **log})
            return subprocess.CompletedProcess(command, returncode, text)

        return run, commands

    return make


# --- the command -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "graph", "flipped"),
    [
        ((10, 16, 1), False, ["--noDataTransfers", "--useSpinWait"]),
        ((10, 16, 1), True, ["--noDataTransfers", "--useSpinWait", "--useCudaGraph"]),
        ((11, 4, 0), False, ["--noCudaGraph"]),
        ((11, 4, 0), True, []),
    ],
)
def test_the_command_spells_out_every_switch_that_the_version_knows(
    version: tuple[int, int, int], graph: bool, flipped: list[str]
) -> None:
    tool = Tool("/opt/trtexec", version)
    shapes = {"ids": (8, 128), "mask:0": (8, 128), "sr": ()}
    assert trtexec.command(tool, Path("b8.engine"), shapes, Path("times.json"), graph=graph) == [
        "/opt/trtexec",
        "--loadEngine=b8.engine",
        "--shapes=ids:8x128,'mask:0':8x128,sr:scalar",
        *flipped,
        *COMMON,
        "--exportTimes=times.json",
    ]


def test_the_run_ends_before_its_moments_lose_resolution() -> None:
    assert trtexec.WARM_UP_MS + trtexec.DURATION_S * 1000 < 2**12  # 24 bits of mantissa: 2**-12 ms below 2**12 ms


@pytest.mark.parametrize(
    ("number", "version"),
    [(101601, (10, 16, 1)), (110400, (11, 4, 0)), (100001, (10, 0, 1)), (8401, (8, 4, 1)), (8003, (8, 0, 3))],
)
def test_the_banners_number_is_a_version(number: int, version: tuple[int, int, int]) -> None:
    assert trtexec_log.version(number) == version


# --- what is read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rows", "mean_ns"),
    [
        ("trt10_trtexec_alexnet_fp16.timing.json.gz", 6039, 495_324),
        ("trt8_trex_mobilenet_qat.timing.json.gz", 8945, 356_062),
        ("trt8_trex_resnet18_a100_fp16.timing.json.gz", 3698, 862_354),
    ],
)
def test_exported_times_are_read(shared: Path, tmp_path: Path, name: str, rows: int, mean_ns: int) -> None:
    path = tmp_path / "times.json"
    path.write_bytes(gzip.decompress((shared / "real/trt_json" / name).read_bytes()))
    times = trtexec.read_times(path)
    assert len(times) == rows
    assert round(statistics.fmean(times)) == mean_ns


def test_exported_times_of_tensorrt_7_have_the_same_key(shared: Path, tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    packed = shared / "real/trt_json/trt7_jetson_resnet50_int8_exportTimes_concatenated.json.gz"
    text = gzip.decompress(packed.read_bytes()).decode()
    _, end = json.JSONDecoder().raw_decode(text)
    path.write_text(text[:end], encoding="utf-8")
    times = trtexec.read_times(path)
    assert (len(times), times[0], round(statistics.fmean(times))) == (1013, 6_882_140, 3_082_168)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=naming("not", "JSON")):
        trtexec.read_times(path)


@pytest.mark.parametrize("text", ['{"Layers": []}', '[{"count": 10}]', "[1]"])
def test_another_file_of_trtexec_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=naming("not", "trtexec", "--exportTimes")):
        trtexec.read_times(path)


def test_a_log_of_10_16_is_read(shared: Path) -> None:
    text = (shared / "real/trt_log/trt10.16.1_trtexec_cudagraph_spinwait_verbose.log").read_text(encoding="utf-8")
    log = trtexec.read_log(text)
    assert log.throughput == 24896.9
    assert log.summary["GPU Compute Time"] == {
        "min": 0.0383301,
        "max": 0.0651855,
        "mean": 0.0387646,
        "median": 0.0388184,
        "percentile(90%)": 0.0388489,
        "percentile(95%)": 0.0389404,
        "percentile(99%)": 0.0390625,
    }
    assert list(log.summary) == ["Latency", "Enqueue Time", "H2D Latency", "GPU Compute Time", "D2H Latency"]
    wanted = trtexec.expected(graph=True)
    assert {name: log.settings[name] for name in wanted} == {**wanted, "ExposeDMA": "Disabled"}
    assert log.warnings == ()


def test_warnings_and_transfers_of_a_log_are_kept(shared: Path) -> None:
    text = (shared / "real/trt_log/trt10.16.1_trtexec_build_and_infer.log").read_text(encoding="utf-8")
    log = trtexec.read_log(text)
    assert (log.throughput, log.summary["H2D Latency"]["mean"]) == (15374.3, 0.00395853)
    assert (log.summary["Latency"]["mean"], log.summary["GPU Compute Time"]["mean"]) == (0.0441053, 0.0359588)
    assert log.settings["Data transfers"] == "Enabled"
    assert any(states(warning, "GPU", "compute", "6.58751%") for warning in log.warnings)


def test_a_log_of_8_4_is_read(shared: Path) -> None:
    packed = shared / "real/trt_log/trt8.4.1_trtexec_load_and_infer.log.gz"
    log = trtexec.read_log(gzip.decompress(packed.read_bytes()).decode())
    assert (log.throughput, log.summary["GPU Compute Time"]["mean"]) == (6207.5, 0.159919)


def test_a_failed_run_holds_no_summary(shared: Path) -> None:
    text = (shared / "real/trt_log/trt8.2.3_trtexec_fp16.txt").read_text(encoding="utf-8")
    with pytest.raises(UserError, match="no performance summary"):
        trtexec.read_log(text)


# --- what is compared ------------------------------------------------------------------------------------------


def test_the_difference_is_that_of_the_medians(ran: Any, spec: ModelSpec, record: dict[str, Any]) -> None:
    runner, commands = ran()
    result = trtexec.measure(Path("b8.engine"), spec, made(record), runner)
    comparison = result["comparison"]
    assert (comparison["device_median_ns"], comparison["trtexec_median_ns"]) == (990_000, 1_000_000)
    assert comparison["difference_ns"] == 10_000
    assert comparison["ratio"] == pytest.approx(1 / 0.99)
    assert comparison["verdict"] == "undecided"  # one process each shows no less than 5 %
    assert (result["version"], result["throughput_qps"]) == ("10.16.1", 990.5)
    assert "--shapes=x:8x3" in commands[1] and result["switches"] == list(commands[1][2:-1])
    assert facts(trtexec.render(result), "trtexec") == [
        "toy/fp16/tensorrt/default/b8",
        "device",
        "990.00 µs",
        "trtexec",
        "10.16.1",
        "1000.00 µs",
        "+10.00 µs",
        "+1.0%",
    ]
    json.dumps(result, allow_nan=False)


def test_a_single_sample_has_no_interval(record: dict[str, Any]) -> None:
    assert trtexec.compare(made(record), [1e6])["interval"] is None


@pytest.mark.parametrize(
    ("graph", "log", "reason"),
    [
        (True, {}, "other settings than asked: CUDA Graph is Disabled, not Enabled"),
        (False, {"graph": "Enabled"}, "other settings than asked: CUDA Graph is Enabled, not Disabled"),
        (
            True,
            {
                "graph": "Enabled",
                "warning": "[07/07/2026-02:11:29] [W] The built TensorRT engine contains operations that are not "
                "permitted under CUDA graph capture mode.\n",
            },
            "could not capture the engine as a CUDA graph",
        ),
    ],
)
def test_what_did_not_run_as_asked_is_not_compared(
    ran: Any, spec: ModelSpec, record: dict[str, Any], graph: bool, log: dict[str, str], reason: str
) -> None:
    runner, _ = ran(**log)
    result = trtexec.measure(Path("b8.engine"), spec, made({**record, "protocol": {"graph": graph}}), runner)
    assert list(result["comparison"]) == ["not_compared"]
    assert reason in result["comparison"]["not_compared"]
    assert reason in trtexec.render(result)


def test_a_setting_that_the_log_does_not_say_is_named() -> None:
    settings = {name: value for name, value in trtexec.expected(graph=False).items() if name != "Spin-wait"}
    reason = trtexec.unlike(Log(settings, 1.0, {}, ()), graph=False)
    assert facts(reason, "other", "trtexec", "Spin-wait") == [
        "trtexec",
        "other",
        "Spin-wait",
        "not",
        "not",
        "Enabled",
    ]


def test_a_trtexec_that_fails_is_a_tool_error_with_its_log(ran: Any, spec: ModelSpec, record: dict[str, Any]) -> None:
    runner, _ = ran(returncode=1)
    with pytest.raises(ToolError, match="exited with 1"):
        trtexec.measure(Path("b8.engine"), spec, made(record), runner)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"case": {"backend": "ort_cuda"}}, "is of backend ort_cuda; trtexec runs the engines of tensorrt"),
        ({"case": {"model": "other"}}, "the record is of model other, the description of toy"),
        ({"case": {"shape": "b1_s8"}}, "model toy has no such shape as b1_s8; its symbols: b"),
    ],
)
def test_a_record_of_something_else_is_refused(
    ran: Any, spec: ModelSpec, record: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    runner, commands = ran()
    for key, value in changes.items():
        record[key] = {**record[key], **value}
    with pytest.raises(UserError, match=message):
        trtexec.measure(Path("b8.engine"), spec, made(record), runner)
    assert commands == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "failed", "reason": "out of memory"}, "the case failed: out of memory"),
        ({"boundaries": {"device": {"not_measured": "no clock"}}}, "device was not measured: no clock"),
    ],
)
def test_a_case_without_a_measurement_is_not_compared_and_trtexec_is_not_run(
    ran: Any, spec: ModelSpec, record: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    runner, commands = ran()
    result = trtexec.measure(Path("b8.engine"), spec, made({**record, **changes}), runner)
    assert (result["comparison"], result["version"]) == ({"not_compared": reason}, "10.16.1")
    assert [command[1:] for command in commands] == [["--help"]]


@pytest.mark.parametrize(
    ("number", "built", "reason"),
    [
        (8401, "8.4.1.5", "trtexec of TensorRT 8.4.1 is not known; needs 10.0.0 or newer"),
        (101601, "10.13.3.9", "trtexec is of TensorRT 10.16.1, the engine of 10.13.3.9"),
        (101601, "10.16.1.11", None),
    ],
)
def test_only_the_tensorrt_that_built_an_engine_is_a_second_clock_on_it(
    tmp_path: Path, number: int, built: str, reason: str | None
) -> None:
    facts = {"status": "ok", "versions": {"tensorrt": built, "polygraphy": "0.53.4"}}
    (tmp_path / "b8.build.json").write_text(json.dumps(facts), encoding="utf-8")
    tool = Tool("/opt/trtexec", trtexec_log.version(number))
    assert trtexec.unsuitable(tool, tmp_path / "b8.engine") == reason


def test_an_engine_of_unknown_origin_is_left_to_trtexec(tmp_path: Path) -> None:
    assert trtexec.unsuitable(Tool("/opt/trtexec", (10, 16, 1)), tmp_path / "b8.engine") is None


def test_a_trtexec_that_tells_no_version_is_a_tool_error(ran: Any) -> None:
    ran()

    def broken(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 127, "libnvinfer.so.10: cannot open shared object file")

    with pytest.raises(ToolError, match=naming("cannot open shared object")):
        trtexec.find(broken)


def program(folder: Path, version: int, shapes: str) -> Path:
    """A trtexec in a folder of its own, which takes 1 ms for each inference of these shapes."""
    text = f"""#!{sys.executable}
import sys
if sys.argv[1:] == ["--help"]:
    print({BANNER.format(version)!r})
elif "--shapes={shapes}" in sys.argv:
    path = sys.argv[-1].removeprefix("--exportTimes=")
    open(path, "w").write("[" + ", ".join(['{{"computeMs": 1.0}}'] * 60) + "]")
    print({LOG.format(version=version, graph="Disabled", warning="")!r}, file=sys.stderr)
"""
    folder.mkdir()
    tool = folder / "trtexec"
    tool.write_text(text, encoding="utf-8")
    tool.chmod(0o755)
    return tool


def test_the_verb_runs_a_trtexec_and_shows_the_difference(
    tmp_path: Path,
    repository: Path,
    record: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(program(tmp_path / "bin", 110400, "pixel_values:8x3x224x224").parent))
    monkeypatch.setattr(hardware, "detect_gpu", lambda index=0: None)
    record["case"]["model"] = "vit_tiny"
    path = tmp_path / "r0.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    out = tmp_path / "x.json"
    argv = ["trtexec", "b8.engine", "--spec", str(repository / "models/vit_tiny.yaml"), "--record", str(path)]
    assert cli.main([*argv, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert facts(said.out, "trtexec")[-7:] == [
        "device",
        "990.00 µs",
        "trtexec",
        "11.4.0",
        "1000.00 µs",
        "+10.00 µs",
        "+1.0%",
    ]
    assert facts(said.err, "trtexec")[:6] == [
        "inferprof",
        "vit_tiny/fp16/tensorrt/default/b8",
        "trtexec",
        "trtexec",
        "1",
        "1",
    ]
    written = json.loads(out.read_text(encoding="utf-8"))
    assert written["comparison"]["difference_ns"] == 10_000
    assert str(tmp_path) not in out.read_text(encoding="utf-8")


def test_without_trtexec_the_verb_is_one_line_and_exit_code_2(
    tmp_path: Path,
    repository: Path,
    record: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    record["case"]["model"] = "vit_tiny"
    path = tmp_path / "r0.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    argv = ["trtexec", "b8.engine", "--spec", str(repository / "models/vit_tiny.yaml"), "--record", str(path)]
    assert cli.main([*argv, "--out", str(tmp_path / "x.json")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and facts(err, "trtexec")[:4] == ["inferprof", "trtexec", "not", "PATH"]
    assert not (tmp_path / "x.json").exists()
