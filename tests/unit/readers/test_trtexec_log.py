"""Logs of trtexec: what they say, and what bounds the run that they are of."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from tests.unit.facts import mentions, states

from inferprof.errors import UserError
from inferprof.explain import explain
from inferprof.findings import Finding
from inferprof.readers import trtexec_bound
from inferprof.readers.kind import Capture
from inferprof.readers.kinds import trtexec
from inferprof.readers.trtexec_log import runs

STAMP = "[01/02/2026-03:04:05] [{level}] {text}"


def log(
    *,
    gpu: float,
    enqueue: float,
    qps: float,
    copies: tuple[float, float] = (0.0, 0.0),
    version: str = "101601",
    settings: tuple[str, str, str] = ("Disabled", "Disabled", "Disabled"),
    extra: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
) -> str:
    """A run with these times in ms; settings of transfers, spin-wait and graph."""

    def statistics(name: str, ms: float) -> str:
        return f"{name}: min = {ms} ms, max = {ms} ms, mean = {ms} ms, median = {ms} ms, percentile(99%) = {ms} ms"

    names = ("Data transfers", "Spin-wait", "CUDA Graph")
    lines = [
        "=== Inference Options ===",
        "Inference Streams: 1",
        *(f"{name}: {value}" for name, value in zip(names, settings, strict=True)),
        "=== Device Information ===",
        "Selected Device: NVIDIA H100 PCIe",
        *extra,
        "=== Performance summary ===",
        f"Throughput: {qps} qps",
        statistics("Latency", gpu + sum(copies)),
        statistics("Enqueue Time", enqueue),
        statistics("H2D Latency", copies[0]),
        statistics("GPU Compute Time", gpu),
        statistics("D2H Latency", copies[1]),
        "Total Host Walltime: 3.0 s",
        "Total GPU Compute Time: 2.0 s",
    ]
    said = [STAMP.format(level="I", text=text) for text in lines]
    said += [STAMP.format(level="W", text=text) for text in warnings]
    head = f"TensorRT.trtexec [TensorRT v{version}] [b1] # trtexec --onnx=a.onnx"
    return "\n".join([f"&&&& RUNNING {head}", *said, f"&&&& PASSED {head}", ""])


def judged(tmp_path: Path, text: str) -> Capture:
    path = tmp_path / "trtexec.log"
    path.write_text(text, encoding="utf-8")
    return trtexec.read(path)


def findings(capture: Capture) -> dict[str, Finding]:
    return {answer.check: answer.findings[0] for answer in capture.answers}


def test_launches_that_take_as_long_as_the_gpu_bound_a_run(tmp_path: Path) -> None:
    capture = judged(tmp_path, log(gpu=0.06, enqueue=0.059, qps=8000))
    finding = findings(capture)["trtexec_bound"]
    assert finding.bottleneck == "launch"
    assert "--useCudaGraph" in finding.advice
    assert capture.parts == pytest.approx({"kernels": 60_000, "waiting": 65_000})
    assert capture.total is not None and capture.total.ns == 125_000


def test_a_host_that_a_full_queue_holds_up_does_not_bound_a_run(tmp_path: Path) -> None:
    capture = judged(tmp_path, log(gpu=3.0, enqueue=3.0, qps=330))
    assert findings(capture)["trtexec_bound"].bottleneck == "kernels"


def test_copies_that_take_longer_than_the_gpu_bound_a_run(tmp_path: Path) -> None:
    capture = judged(tmp_path, log(gpu=1.0, enqueue=0.1, qps=320, copies=(0.1, 3.0)))
    finding = findings(capture)["trtexec_bound"]
    assert (finding.bottleneck, finding.evidence["gpu_compute_ms"]) == ("copy", 1.0)
    assert finding.share == pytest.approx(0.96)


def test_a_gpu_that_waits_for_a_host_that_sleeps_is_said_with_the_switch(tmp_path: Path) -> None:
    finding = findings(judged(tmp_path, log(gpu=0.036, enqueue=0.02, qps=15_000)))["trtexec_bound"]
    assert (finding.bottleneck, round(finding.share or 0, 2)) == ("idle", 0.46)
    assert "--useSpinWait" in finding.advice


def test_copies_of_a_noticeable_part_of_the_latency_are_said_beside_and_save_no_time_of_kernels(
    tmp_path: Path,
) -> None:
    finding = findings(judged(tmp_path, log(gpu=1.0, enqueue=0.1, qps=800, copies=(0.2, 0.1))))["trtexec_copies"]
    assert finding.evidence == {"h2d_ms": 0.2, "d2h_ms": 0.1, "latency_ms": pytest.approx(1.3)}
    assert finding.gain is not None and finding.gain.high_ns == pytest.approx(250_000)


@pytest.mark.parametrize(("enqueue", "near"), [(0.119, True), (0.14, False)])
def test_launches_that_take_less_than_the_gpu_are_said_to_be_near(enqueue: float, near: bool, tmp_path: Path) -> None:
    finding = findings(judged(tmp_path, log(gpu=0.131, enqueue=enqueue, qps=7000)))["trtexec_bound"]
    assert finding.bottleneck == "launch"
    assert mentions(finding.reason, "near") == near


@pytest.mark.parametrize(
    ("version", "settings", "opposite"),
    [
        ("101601", ("Enabled", "Disabled", "Disabled"), "since 11"),
        ("110100", ("Disabled", "Enabled", "Enabled"), "up to 10"),
        ("101601", ("Disabled", "Enabled", "Enabled"), None),
    ],
)
def test_defaults_that_10_and_11_have_opposite_are_named(
    version: str, settings: tuple[str, str, str], opposite: str | None, tmp_path: Path
) -> None:
    notes = judged(tmp_path, log(gpu=1.0, enqueue=0.1, qps=990, version=version, settings=settings)).notes
    (note,) = [note for note in notes if note.startswith("timed with")]
    assert ("opposite" in note) == (opposite is not None)
    assert (opposite or "") in note


def test_an_unstable_clock_is_a_doubt(tmp_path: Path) -> None:
    warning = "* GPU compute time is unstable, with coefficient of variance = 6.6%."
    capture = judged(tmp_path, log(gpu=1.0, enqueue=0.1, qps=990, warnings=(warning, "  If not in use, lock")))
    finding = findings(capture)["trtexec_unstable"]
    assert (finding.bottleneck, finding.share) == ("measurement", None)
    assert "6.6%" in finding.reason


NEW_TABLE = (
    "=== Profile (100 iterations ) ===",
    "   Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer",
    "      30.00       0.3000       0.2990      30.0   conv1 + relu 2",
    "      70.00       0.7000       0.6990      70.0   {ForeignNode[a...b]}",
    "     100.00       1.0000       0.9980     100.0   Total",
)
OLD_TABLE = (
    "=== Profile (100 iterations ) ===",
    "                 Layer   Time (ms)   Avg. Time (ms)   Median Time (ms)   Time %",
    "        conv1 + relu 2       30.00           0.3000             0.2990     30.0",
    "  {ForeignNode[a...b]}       70.00           0.7000             0.6990     70.0",
    "                 Total      100.00           1.0000             0.9980    100.0",
)


@pytest.mark.parametrize("table", [NEW_TABLE, OLD_TABLE])
def test_the_table_of_layers_is_read_in_both_forms(table: tuple[str, ...], tmp_path: Path) -> None:
    text = log(gpu=1.0, enqueue=0.1, qps=990, extra=table)
    (run,) = runs(text)
    assert [(layer.name, layer.mean, layer.median) for layer in run.layers] == [
        ("conv1 + relu 2", 0.3, 0.299),
        ("{ForeignNode[a...b]}", 0.7, 0.699),
    ]
    assert run.iterations == 100
    capture = judged(tmp_path, text)
    assert findings(capture)["trtexec_bound"].subject == "{ForeignNode[a...b]}"
    rows = capture.rows
    assert rows is not None
    layers = rows[rows["level"].eq("layer") & rows["metric"].eq("duration_total")]
    assert dict(zip(layers["name"], layers["value"], strict=True)) == {
        "conv1 + relu 2": 30e6,
        "{ForeignNode[a...b]}": 70e6,
    }


def test_a_run_that_failed_says_its_errors(tmp_path: Path) -> None:
    head = "TensorRT.trtexec [TensorRT v100700] [b1] # trtexec --onnx=a.onnx"
    error = STAMP.format(level="E", text="[TRT] ModelImporter.cpp:1: no such operator")
    capture = judged(tmp_path, f"&&&& RUNNING {head}\n{error}\n&&&& FAILED {head}\n")
    assert states(capture.failure, "FAILED", "ModelImporter.cpp:1", "no")
    assert not capture.answers


def test_a_log_that_is_cut_before_its_summary_says_so(tmp_path: Path) -> None:
    text = log(gpu=1.0, enqueue=0.1, qps=990).partition("=== Performance")[0]
    capture = judged(tmp_path, text)
    assert "performance summary" in str(capture.failure)
    assert "tee" in capture.lacks[0].command


def test_several_streams_at_once_are_judged_by_the_latency(tmp_path: Path) -> None:
    text = log(gpu=1.0, enqueue=0.1, qps=3000, copies=(0.5, 0.0)).replace("Streams: 1", "Streams: 4")
    capture = judged(tmp_path, text)
    assert capture.total is not None and (capture.total.ns, capture.total.of) == (1.5e6, "trtexec's latency")
    assert capture.parts == {"kernels": 1e6, "copies": 0.5e6}


EXPECTED = {
    "trt10.16.1_trtexec_build_and_infer.log": ((10, 16, 1), 15374.3, 0.0359588),
    "trt10.16.1_trtexec_cudagraph_spinwait_verbose.log": ((10, 16, 1), 24896.9, 0.0387646),
    "trt10.16.1_trtexec_under_nsys.log": ((10, 16, 1), 8700.13, 0.0650139),
    "trt8.4.1_trtexec_load_and_infer.log.gz": ((8, 4, 1), 6207.5, 0.159919),
}


def text_of(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


@pytest.mark.parametrize("name", EXPECTED)
def test_other_peoples_logs_are_read(name: str, shared: Path) -> None:
    (run,) = runs(text_of(shared / "real/trt_log" / name))
    assert (run.version, run.throughput, run.of("GPU Compute Time", "mean")) == EXPECTED[name]
    assert run.passed


def test_the_seven_runs_of_tensorrt_7_are_read(shared: Path) -> None:
    every = runs(text_of(shared / "real/trt_log/trt7.1_jetson_resnet50_trtexec.txt"))
    assert len(every) == 7
    first, last = every[0].summary["GPU Compute Time"], every[-1].summary["GPU Compute Time"]
    assert (every[0].throughput, first["mean"], first["median"]) == (318.785, 3.05402, 3.03919)
    assert (last["mean"], first["percentile(99%)"]) == (247.86, 3.41711)
    # Its throughput counts items of a batch: 4 in 6.72 ms.
    assert trtexec_bound.query_ns(every[1]) == pytest.approx(4 / 595.253 * 1e9)


@pytest.mark.parametrize("value", ["1.2.3", "-0.03", "1e300"])
def test_a_summary_with_what_no_clock_shows_is_damaged(value: str, tmp_path: Path) -> None:
    path = tmp_path / "trtexec.log"
    path.write_text(
        "&&&& RUNNING TensorRT.trtexec [TensorRT v101601] # trtexec\n[I] === Performance summary ===\n"
        f"[I] Throughput: 15374.3 qps\n[I] GPU Compute Time: min = {value} ms, mean = {value} ms\n"
    )
    with pytest.raises(UserError, match=re.escape(value)):
        explain([path])


def test_numbers_of_a_run_that_failed_are_said_to_be_of_one(tmp_path: Path) -> None:
    whole = log(gpu=1.0, enqueue=0.1, qps=900.0)
    assert not any("FAILED" in note for note in judged(tmp_path, whole).notes)
    assert any("FAILED" in note for note in judged(tmp_path, whole.replace("&&&& PASSED", "&&&& FAILED")).notes)


def test_copies_that_a_cut_log_does_not_tell_are_not_0(tmp_path: Path) -> None:
    whole = log(gpu=1.0, enqueue=0.1, qps=900.0, copies=(0.2, 0.3))
    capture = judged(tmp_path, whole[: whole.index("D2H Latency")])
    assert any(mentions(note, "cut", "D2H Latency") for note in capture.notes)
    assert "trtexec_copies" not in [answer.check for answer in capture.answers]
    assert "trtexec_copies" in [answer.check for answer in judged(tmp_path, whole).answers]


def test_a_time_that_is_not_a_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nan is no time"):
        judged(tmp_path, log(gpu=1.0, enqueue=0.1, qps=900.0).replace("mean = 1.0 ms", "mean = nan ms"))


def test_time_on_a_dla_is_not_called_kernels_of_the_gpu(tmp_path: Path) -> None:
    text = log(gpu=4.0, enqueue=0.4, qps=250.0, extra=("=== System Options ===", "DLACore: 1"))
    capture = judged(tmp_path, text)
    assert "kernels" not in capture.parts
    assert mentions(findings(capture)["trtexec_bound"].reason, "DLA core 1")
    assert "kernels" in judged(tmp_path, log(gpu=4.0, enqueue=0.4, qps=250.0)).parts


def test_several_streams_are_said_with_the_time_between_two_inferences(tmp_path: Path) -> None:
    text = log(gpu=4.6, enqueue=0.4, qps=800.0, copies=(0.5, 0.1)).replace("Streams: 1", "Streams: 4")
    (line,) = [note for note in judged(tmp_path, text).notes if note.startswith("4 streams")]
    assert mentions(line, "1.25 ms")


def test_pieces_of_a_log_are_read_as_far_as_they_tell(tmp_path: Path) -> None:
    whole = log(gpu=4.0, enqueue=1.0, qps=240.0, copies=(0.1, 0.1))
    summary = [line for line in whole.splitlines() if " = " in line or "Throughput" in line]
    bare = [re.sub(r"^\[.*?\] \[I\] ", "- ", line) for line in summary]
    average = "Average on 10 runs - GPU latency: {} ms - Host latency: {} ms (enqueue 1 ms)"
    averages = [STAMP.format(level="I", text=average.format(gpu, gpu + 1)) for gpu in (3.9, 4.1)]
    for number, lines in enumerate((summary, bare, averages, ["  " + line for line in whole.splitlines()])):
        path = tmp_path / f"{number}.log"
        path.write_text("\n".join(["So slow:", *lines, ""]))
        (case,) = explain([path])
        total = case.total
        assert total is not None
        assert total.ns == pytest.approx(5e6 if lines is averages else 1e9 / 240), number
        assert case.captures[0].parts["kernels"] == pytest.approx(4e6)


def test_layers_of_a_table_in_part_are_shares_of_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "layers.log"
    rows = ["=== Profile (100 iterations ) ===", "100.0  1.0  1.0  10.0  conv1", "50.0  0.5  0.5  5.0  pool"]
    for end, whole in (([], 10e6), (["1100.0  11.0  11.0  100.0  Total"], 11e6)):
        path.write_text("\n".join(STAMP.format(level="I", text=text) for text in [*rows, *end]) + "\n")
        (case,) = explain([path])
        assert case.total is not None and case.total.ns == pytest.approx(whole)
        assert sum(case.captures[0].parts.values()) == pytest.approx(whole)


def test_a_layer_that_waits_for_the_dla_is_called_that(tmp_path: Path) -> None:
    path = tmp_path / "dla.log"
    rows = ["=== Profile (10 iterations ) ===", "1.0 0.1 1.1 {ForeignNode[a...b]}", "90.0 9.0 98.9 head from nvm"]
    path.write_text("\n".join(STAMP.format(level="I", text=text) for text in rows) + "\n")
    (case,) = explain([path])
    (finding,) = [finding for answer in case.answers for finding in answer.findings]
    assert finding.subject == "head from nvm" and mentions(finding.reason, "DLA")


def test_launches_as_long_as_the_gpus_time_are_said_also_where_nothing_waits(tmp_path: Path) -> None:
    path = tmp_path / "near.log"
    path.write_text(log(gpu=7.5, enqueue=7.8, qps=132.0))
    (case,) = explain([path])
    (finding,) = [finding for answer in case.answers for finding in answer.findings]
    assert states(finding.reason, "7.8 ms") and mentions(finding.advice, "--useCudaGraph")


def test_shapes_of_all_inputs_are_told(tmp_path: Path) -> None:
    path = tmp_path / "inputs.log"
    shapes = [f"Input inference shape : x{number}=1x{number}" for number in range(6)]
    text = log(gpu=4.0, enqueue=1.0, qps=240.0)
    several = "\n".join(STAMP.format(level="I", text=line) for line in shapes)
    path.write_text(text.replace(STAMP.format(level="I", text="Inference Streams: 1"), several))
    (case,) = explain([path])
    ran = " ".join(case.captures[0].ran)
    assert mentions(ran, "x0=1x0") and mentions(ran, "2 more")
    assert case.captures[0].settings["shapes"].split() == [f"1x{number}" for number in range(6)]


def test_several_summaries_without_their_runs_are_told_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "readme.md"
    lines = "[I] Throughput: {} qps\n[I] GPU Compute Time: min = {} ms, mean = {} ms, median = {} ms\n"
    path.write_text("FP32:\n" + lines.format(100, 9, 9, 9) + "FP16:\n" + lines.format(200, 4, 4, 4))
    (case,) = explain([path])
    assert case.total is not None and case.total.ns == pytest.approx(5e6)
    assert sum("GPU compute" in note for note in case.captures[0].notes) == 2


def test_averages_of_the_oldest_versions_are_the_gpus_time(tmp_path: Path) -> None:
    path = tmp_path / "old.log"
    average = "Average over 10 runs is 1.{} ms (host walltime is 1.9 ms, 99% percentile time is 1.8)."
    head = "TensorRT.trtexec # ./trtexec --deploy=a.prototxt"
    path.write_text(
        "\n".join([f"&&&& RUNNING {head}", average.format(2), average.format(4), f"&&&& PASSED {head}", ""])
    )
    (case,) = explain([path])
    assert case.failure is None and case.captures[0].parts == {"kernels": pytest.approx(1.3e6)}
