"""ONNX Runtime's profiles, ours and other people's, from 2019 to today."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit import cuts
from tests.unit.facts import facts, naming

from inferprof.backends import ort
from inferprof.case import Case, Shape, Variant
from inferprof.devices.cpu import CpuDevice
from inferprof.errors import UserError
from inferprof.machine.hardware import Machine
from inferprof.measure.lane import host_buffer
from inferprof.model import data, model_spec
from inferprof.plugins import OpenRequest
from inferprof.profilers import kineto, ort_profile
from inferprof.readers.kinds import ort as explained
from inferprof.readers.ort_events import NOT_TOLD
from inferprof.readers.ort_json import read_profile
from inferprof.tables.nodes import providers
from inferprof.tables.nodes.providers import OrtProfile

CUDA, TENSORRT, MKLDNN = (f"{name}ExecutionProvider" for name in ("CUDA", "Tensorrt", "MKLDNN"))
CASE = Case("vit", "fp16", "ort_cuda", "default", "b8")


def run(ts: int, dur: int) -> dict[str, Any]:
    return {"cat": "Session", "pid": 9, "tid": 9, "dur": dur, "ts": ts, "ph": "X", "name": "model_run", "args": {}}


def node(ts: int, dur: int, name: str, **args: Any) -> dict[str, Any]:
    return {**run(ts, dur), "cat": "Node", "name": f"{name}_kernel_time", "args": args}


def on_cpu(ts: int, dur: int, name: str, op_type: str) -> dict[str, Any]:
    return node(ts, dur, name, op_name=op_type, provider=providers.CPU)


def written(folder: Path, *events: dict[str, Any]) -> Path:
    """As ONNX Runtime writes it: an event on each line."""
    path = folder / "profile.json"
    path.write_text("[\n" + ",\n".join(json.dumps(event) for event in events) + "\n]\n")
    return path


def of_provider(profile: OrtProfile) -> dict[str, tuple[int, int]]:
    """Provider → (node executions, µs)."""
    durations = profile.nodes.groupby("provider")["duration"]
    return {str(name): (len(group), int(group.sum()) // 1000) for name, group in durations}


def ranges(frame: pd.DataFrame) -> list[tuple[str, int, float]]:
    """(name, instances, median in ns)."""
    rows = frame[(frame["level"] == "range") & (frame["metric"] == "duration_median")]
    return list(rows[["name", "instances", "value"]].itertuples(index=False, name=None))


def shares(frame: pd.DataFrame) -> list[tuple[str, float, float, float]]:
    """(provider, nodes a run, Memcpy nodes a run, percent)."""
    table = providers.by_provider(providers.per_run(frame))
    table["share"] = (100 * table["share"]).round(2)
    return list(table[["provider", "nodes", "copies", "share"]].itertuples(index=False, name=None))


# --- our captures ----------------------------------------------------------------------------------------------


def test_a_session_of_the_cuda_provider(repository: Path) -> None:
    path = repository / "tests/data/ort_profile/h100_ort_cuda_vit.json.gz"
    profile = read_profile(path)
    assert of_provider(profile) == {CUDA: (1068, 535180), providers.CPU: (183, 3326)}
    assert profile.runs.tolist() == [515_274_000, 24_192_000, 14_858_000]
    frame = ort_profile.read(path)
    assert ranges(frame) == [("model_run", 2, 19_525_000.0)]
    assert shares(frame) == [(CUDA, 356, 0, 93.04), (providers.CPU, 61, 0, 6.96)]
    left = providers.on_cpu(providers.per_run(frame))
    assert left["op_type"].value_counts().to_dict() == {"Slice": 36, "Concat": 25}


def test_a_fallback_between_two_engines_and_the_copies_that_it_costs(repository: Path) -> None:
    frame = ort_profile.read(repository / "tests/data/ort_profile/h100_ort_tensorrt_ep.json.gz")
    assert ranges(frame) == [("model_run", 20, 472_500.0)]
    assert shares(frame) == [(TENSORRT, 4, 2, 98.07), (providers.CPU, 1, 0, 1.93)]
    nodes = providers.per_run(frame)
    assert nodes["op_type"].tolist() == ["TRTKernel", "TRTKernel", "MemcpyToHost", "MemcpyFromHost", "Hardmax"]
    (fallback,) = providers.on_cpu(nodes).itertuples()
    assert (fallback.name, fallback.executions, fallback.duration) == ("hardmax", 1, 7600)


def test_rows_have_level_name_and_provider_and_type_as_the_path_around_it(repository: Path) -> None:
    frame = ort_profile.read(repository / "tests/data/ort_profile/h100_ort_tensorrt_ep.json.gz")
    rows = frame[frame["name"] == "hardmax"]
    assert set(zip(rows["level"], rows["owner"], rows["tool"], strict=True)) == {
        ("op", "CPUExecutionProvider > Hardmax", "ort_profile")
    }
    values = rows.set_index("metric")["value"].to_dict()
    assert (values["duration_total"], values["duration_mean"]) == (152_000, 7600)
    assert set(rows.loc[rows["metric"] != "first_run", "instances"]) == {20}
    assert values["first_run"] == 33_000


# --- other people's --------------------------------------------------------------------------------------------


def test_a_file_of_2019_tells_no_provider(shared: Path) -> None:
    path = shared / "real/ort_profile/ort_2019-06_cpu_mnist_no_provider.json"
    assert of_provider(read_profile(path)) == {NOT_TOLD: (12, 1963)}
    frame = ort_profile.read(path)
    assert ranges(frame) == [("model_run", 1, 2_455_000.0)]
    longest = providers.per_run(frame).iloc[0]
    assert (longest["name"], longest["op_type"], longest["duration"]) == ("Convolution28", "Conv", 1_702_000)


def test_fences_are_no_nodes_and_every_run_is_found(shared: Path) -> None:
    path = shared / "real/ort_profile/ort_2019_mkldnn_fences.json"
    profile = read_profile(path)
    found = of_provider(profile)
    assert (found[MKLDNN][0], found[providers.CPU][0]) == (441, 231)
    assert found[MKLDNN][1] + found[providers.CPU][1] == 22_651_829
    assert len(profile.runs) == 21
    assert profile.nodes.groupby("run").size().tolist() == [32] * 21
    assert shares(ort_profile.read(path)) == [(MKLDNN, 21, 0, 97.87), (providers.CPU, 11, 0, 2.13)]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("excerpt_ort0.4.0_unnamed_nodes", ("", "not told > Conv", 12_944_000)),
        ("excerpt_ort_2024_thread_scheduling_stats", ("/0/Conv", "not told > not told", 20_077_000)),
    ],
)
def test_excerpts_without_a_run_have_nodes_all_the_same(name: str, row: tuple[str, str, int], shared: Path) -> None:
    frame = ort_profile.read(shared / f"real/ort_profile/{name}.json")
    total = frame[frame["metric"] == "duration_total"]
    assert list(total[["name", "owner", "value"]].itertuples(index=False, name=None)) == [row]


# --- runs ------------------------------------------------------------------------------------------------------


def test_the_first_run_is_dropped_where_there_are_others(tmp_path: Path) -> None:
    first, second = on_cpu(1, 90, "a", "Add"), on_cpu(201, 4, "a", "Add")
    frame = ort_profile.read(written(tmp_path, first, run(0, 100), second, run(200, 10)))
    assert providers.per_run(frame)["duration"].tolist() == [4000]
    assert ranges(frame) == [("call", 1, 10_000.0)]
    assert providers.per_run(frame)["first_run"].tolist() == [90_000]
    whole = frame[(frame["level"] == "range") & (frame["metric"] == "first_run")]
    assert whole["value"].tolist() == [100_000]
    only = ort_profile.read(written(tmp_path, first, run(0, 100)))
    assert providers.per_run(only)["duration"].tolist() == [90_000]
    assert providers.per_run(only)["first_run"].isna().all()


def test_a_run_on_the_cpu_alone_is_the_call_and_any_other_is_not(tmp_path: Path) -> None:
    gpu = node(5, 1, "b", op_name="MatMul", provider=CUDA)
    cpu = on_cpu(1, 2, "a", "Add")
    assert ranges(ort_profile.read(written(tmp_path, cpu, run(0, 10))))[0][0] == "call"
    assert ranges(ort_profile.read(written(tmp_path, cpu, gpu, run(0, 10))))[0][0] == "model_run"


def test_nodes_that_span_the_nodes_of_their_bodies_have_no_share(tmp_path: Path) -> None:
    events = [on_cpu(2, 3, "inner", "Mul"), on_cpu(1, 8, "if", "If"), on_cpu(10, 1, "after", "Add"), run(0, 20)]
    nodes = providers.per_run(ort_profile.read(written(tmp_path, *events)))
    assert nodes[["name", "share"]].to_numpy().tolist() == [["inner", 0.75], ["after", 0.25]]


def test_a_node_that_runs_twice_in_a_run_is_counted_twice(tmp_path: Path) -> None:
    events = [on_cpu(start, 1, "body", "Mul") for start in (1, 3, 21, 23, 41, 43)]
    nodes = providers.per_run(ort_profile.read(written(tmp_path, *events, run(0, 9), run(20, 9), run(40, 9))))
    assert nodes[["executions", "duration"]].to_numpy().tolist() == [[2.0, 2000.0]]


@pytest.mark.parametrize(("interrupted", "shares"), [(4, [0.73, 0.27]), (500, [0.75, 0.25])])
def test_a_run_in_which_a_thread_lost_its_core_is_no_share_of_its_operator(
    interrupted: int, shares: list[float], tmp_path: Path
) -> None:
    runs = range(0, 12_000, 1000)
    long = [on_cpu(start, 6, "a", "MatMul") for start in runs]
    short = [on_cpu(start + 10, interrupted if start == 11_000 else 2, "b", "Add") for start in runs]
    nodes = providers.per_run(
        ort_profile.read(written(tmp_path, *long, *short, *(run(start, 900) for start in runs)))
    )
    assert providers.by_type(nodes).round(2).to_dict() == dict(zip(("MatMul", "Add"), shares, strict=True))


# --- files that are not whole ----------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_was_cut_anywhere_is_refused(tmp_path: Path, packed: bool) -> None:
    events = [on_cpu(1, 2, "a", "Add"), run(0, 10), on_cpu(11, 7, "a", "Add"), run(11, 9)]
    content = json.dumps(events, indent=1).encode()
    content = gzip.compress(content) if packed else content
    assert list(cuts.accepted(content, "x.json", ort_profile.read, tmp_path, range(len(content)))) == []


@pytest.mark.parametrize("kept", ["", ",", ',\n {"cat": "Node", "args": {"op_name": "Add"},'])
def test_of_a_session_that_was_killed_explain_tells_what_is_whole(tmp_path: Path, kept: str) -> None:
    events = [event for at in range(0, 400, 100) for event in (on_cpu(at + 1, 50, "a", "Add"), run(at, 90))]
    path = tmp_path / "killed.json"
    path.write_text(json.dumps(events)[:-1] + kept, encoding="utf-8")
    capture = explained.read(path)
    assert explained.CUT in capture.notes
    path.write_text(json.dumps(events), encoding="utf-8")
    whole = explained.read(path)
    assert explained.CUT not in whole.notes and (capture.ran, capture.parts) == (whole.ran, whole.parts)


def test_a_run_that_did_not_come_to_its_end_counts_for_nothing(tmp_path: Path) -> None:
    events = [on_cpu(1, 2, "a", "Add"), run(0, 10), on_cpu(11, 7, "a", "Add"), on_cpu(19, 1, "b", "Mul")]
    profile = read_profile(written(tmp_path, *events))
    assert profile.nodes[["run", "name", "duration"]].to_numpy().tolist() == [[0, "a", 2000]]
    assert profile.runs.tolist() == [10_000]


DAMAGED = {
    "no list": {"cat": "Node"},
    "no event": [7],
    "no name": [{"cat": "Node", "ts": 1, "dur": 1, "pid": 1, "tid": 1}],
    "no time": [{"cat": "Node", "name": "a_kernel_time", "dur": 1, "pid": 1, "tid": 1}],
    "words": [{"cat": "Node", "name": "a_kernel_time", "ts": "x", "dur": 1, "pid": 1, "tid": 1}],
    "nan": [{"cat": "Node", "name": "a_kernel_time", "ts": float("nan"), "dur": 1, "pid": 1, "tid": 1}],
    "negative": [{"cat": "Node", "name": "a_kernel_time", "ts": 1, "dur": -1, "pid": 1, "tid": 1}],
    "arguments": [{"cat": "Node", "name": "a_kernel_time", "ts": 1, "dur": 1, "pid": 1, "tid": 1, "args": 5}],
    "bytes": [
        {"cat": "Node", "name": "a_kernel_time", "ts": 1, "dur": 1, "pid": 1, "tid": 1, "args": {"output_size": "x"}}
    ],
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_what_onnx_runtime_does_not_write_is_one_line(content: object, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError) as caught:
        read_profile(path)
    assert "\n" not in str(caught.value)


# --- runs at the same time -------------------------------------------------------------------------------------


def test_nodes_of_runs_at_the_same_time_are_told_apart_by_thread(repository: Path) -> None:
    profile = read_profile(repository / "tests/data/faults/ort_overlapping_runs.json").settled()
    assert profile.runs.tolist() == [4_000_000, 1_000_000]
    assert profile.nodes.groupby("run").size().to_dict() == {1: 4, 2: 1}


@pytest.mark.parametrize("threads", [(1, 1, 1), (1, 2, 3)])
def test_where_nothing_tells_which_of_two_runs_a_node_is_of_they_are_refused(
    threads: tuple[int, int, int], tmp_path: Path
) -> None:
    first, second, of_node = threads
    events = [
        {**run(0, 10), "tid": first},
        {**run(5, 10), "tid": second},
        {**on_cpu(6, 1, "a", "Add"), "tid": of_node},
    ]
    with pytest.raises(UserError, match="runs overlap"):
        read_profile(written(tmp_path, *events))


def test_nodes_of_a_parallel_executor_are_of_the_run_around_them(tmp_path: Path) -> None:
    events = [on_cpu(1, 2, "a", "Add"), {**on_cpu(1, 3, "b", "Add"), "tid": 9}, run(0, 10), run(10, 5)]
    assert read_profile(written(tmp_path, *events)).nodes["run"].tolist() == [0, 0]


def test_damage_in_the_middle_is_not_taken_for_the_end(tmp_path: Path) -> None:
    path = written(tmp_path, on_cpu(1, 2, "a", "Add"), on_cpu(3, 2, "b", "Add"), on_cpu(5, 2, "c", "Add"))
    path.write_text(path.read_text().replace('"b_kernel', "b_kernel"))
    with pytest.raises(UserError, match="cut short or damaged"):
        ort_profile.read(path)


def test_a_packed_file_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b8.json.gz"
    noise = [on_cpu(i, i * i % 97, f"n{i * i}", "Add") for i in range(50_000)]
    whole = gzip.compress(json.dumps(noise).encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="cut short or damaged"):
        ort_profile.read(path)


def test_a_session_that_ran_nothing_is_refused(tmp_path: Path) -> None:
    loading = {**run(0, 5), "name": "model_loading_uri"}
    with pytest.raises(UserError, match="holds no node's time"):
        ort_profile.read(written(tmp_path, loading))


def test_each_reader_names_the_other_where_the_file_is_its(tmp_path: Path) -> None:
    path = written(tmp_path, run(0, 5))
    with pytest.raises(UserError, match=naming("ONNX", "Runtime", "profile", "inferprof table ort_profile")):
        kineto.read(path)
    path.write_text('{"traceEvents": []}')
    with pytest.raises(UserError, match=naming("Kineto trace", "inferprof table kineto")):
        ort_profile.read(path)


# --- capturing -------------------------------------------------------------------------------------------------


def test_the_run_is_told_to_profile() -> None:
    argv = ort_profile.command(["inferprof", "run", "ort_cpu"], Path("c/b8.json.gz"))
    assert argv == ["inferprof", "run", "ort_cpu", "--native-profile", "c/b8.json.gz"]


def test_a_finished_profile_is_packed_and_keeps_only_what_is_known(tmp_path: Path) -> None:
    path = tmp_path / "b8.json.gz"
    loading = {**run(0, 5), "name": "model_loading_uri", "args": {"path": "/scratch/someone/m.onnx"}, "host": "h"}
    events = [loading, node(7, 1, "a", op_name="Add", provider=providers.CPU, library="lib/x.so"), run(6, 5)]
    path.write_bytes(written(tmp_path, *events).read_bytes())
    before = ort_profile.read(path)
    ort_profile.finish(path, lambda command: None)
    text = gzip.decompress(path.read_bytes()).decode()
    assert "someone" not in text
    assert "x.so" not in text
    assert "host" not in text
    pd.testing.assert_frame_equal(ort_profile.read(path), before)


def test_only_onnx_runtime_writes_such_a_profile_and_needs_no_gpu_for_it() -> None:
    machine = Machine(None)
    assert ort_profile.refuses(Case("vit", "fp32", "ort_cpu", "default", "b8"), machine) is None
    assert ort_profile.refuses(CASE, machine) is None
    torch = ort_profile.refuses(Case("vit", "fp32", "torch_eager", "default", "b8"), machine)
    assert facts(torch) == ["ort_profile", "torch_eager", "not", "ONNX", "Runtime"]


def test_what_the_installed_onnx_runtime_writes_is_read(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    parser = pytest.importorskip("onnx.parser")
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[100000] x) => (float[100000] z) { y = Exp(x) z = Neg(y) }'
    )
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    model = parser.parse_model(text).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=[providers.CPU])
    for _ in range(3):
        session.run(None, {"x": np.zeros(100_000, np.float32)})
    path = Path(session.end_profiling())
    ort_profile.finish(path, lambda command: None)
    frame = ort_profile.read(path)
    assert set(providers.per_run(frame)["op_type"]) == {"Exp", "Neg"}
    assert shares(frame) == [(providers.CPU, 2, 0, 100)]
    ((name, runs, median),) = ranges(frame)
    assert (name, runs) == ("call", 2)
    assert median > 0


def test_of_control_flow_the_branch_that_ran_is_seen_node_by_node(shared: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = shared / "real/onnx/silero_vad.onnx"
    (tmp_path / "silero_vad.yaml").write_text(
        f"""
source: onnx
onnx: {model}
inputs:
  - {{name: input, dtype: float32, dims: [b, 576], data: normal}}
  - {{name: state, dtype: float32, dims: [2, b, 128], data: zeros}}
  - {{name: sr, dtype: int64, dims: [], data: "constant:16000"}}
"""
    )
    spec, out = model_spec.load(tmp_path / "silero_vad.yaml"), tmp_path / "profile.json"
    shape, device = spec.at(Shape.parse("b1")), CpuDevice()
    request = OpenRequest(model, spec, "fp32", shape, Variant(), device, threads=1, native_profile=out)
    with ort.open_cpu(request) as session:
        session.bind({name: host_buffer(array) for name, array in data.feeds(spec, shape, 1, 0)[0].items()})
        session.enqueue()
        session.enqueue()
    nodes = providers.per_run(ort_profile.read(out))
    assert (len(nodes), nodes["executions"].unique().tolist()) == (50, [1.0])
    assert (nodes["name"].str.contains("then_branch").sum(), nodes["name"].str.contains("else_branch").sum()) == (
        49,
        0,
    )


def test_runs_of_two_sessions_are_not_averaged(tmp_path: Path) -> None:
    def session(begin: int, dur: int) -> list[dict[str, Any]]:
        made = [{**run(begin - 10, 5), "name": "session_initialization"}]
        return made + [event for ts in (begin, begin + dur) for event in (run(ts, dur), on_cpu(ts, dur, "a", "Conv"))]

    with pytest.raises(UserError, match=naming("2 sessions", "file of its own")):
        read_profile(written(tmp_path, *session(100, 10), *session(1000, 5000)))


@pytest.mark.parametrize("change", [{"dur": 10**30}, {"dur": 1e300}, {"ts": 10**19}, {"ts": -(10**17)}])
def test_a_time_that_no_session_lasts_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=naming("event 1", next(iter(change)))):
        read_profile(written(tmp_path, run(0, 10), {**on_cpu(1, 5, "a", "Conv"), **change}, run(20, 10)))


def test_a_provider_of_nothing_is_not_told(tmp_path: Path) -> None:
    profile = read_profile(written(tmp_path, run(0, 10), node(1, 5, "a", op_name="Conv", provider=None)))
    assert set(profile.nodes["provider"]) == {NOT_TOLD}
