"""One type per kind of JSON file: what is read back is what was written, and anything else is one line."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from tests.unit import serving_records
from tests.unit.facts import facts

from inferprof import documents
from inferprof.documents import published
from inferprof.errors import UserError
from inferprof.files import write_document

REPOSITORY = Path(__file__).resolve().parents[3]
BUNDLES = sorted((REPOSITORY / "studies").rglob("*.zip"))
RECORD = REPOSITORY / (
    "tests/data/records/h100-80gb-hbm3-sm90-93fb0a94/benchmark/minilm/fp16/ort_cuda/graph/b8_s128/r0.json"
)
POOL = {"pool": "1.0", "of_graphs": True, "segments": 2, "reserved": 8, "allocated": 0, "inactive": 8}
CASE = ("vit", "fp16", "ort_cpu", "default", "b1")
OF_MACHINE = ("environment", "bandwidth", "ceilings", "config", "profilers")
SUFFIXES = ("convert", "audit", "accuracy", "cost", "partition", "build")


def kind_of(name: str) -> documents.Kind | None:
    """The kind of a file of a bundle; None for captures, which tools wrote, and for what has a check of its own."""
    parts = Path(name).parts
    if name.endswith(".record.json"):
        return "watched"
    folders: dict[str, documents.Kind] = {"benchmark": "record", "trtexec": "trtexec", "diagnosis": "diagnosis"}
    for folder, kind in folders.items():
        if folder in parts[:-1]:
            return kind
    last = Path(name).stem.split(".")[-1]
    return next((kind for kind in documents.TYPES if kind == last), None) if "capture" not in parts else None


def head(**more: Any) -> dict[str, Any]:
    """What even a record has that failed before anything was known."""
    case = dict(zip(("model", "precision", "backend", "variant", "shape"), CASE, strict=True))
    return {
        "schema": 1,
        "case": case,
        "round": 0,
        "machine": "m",
        "options": {},
        "placement": "pageable",
        "protocol": {},
        "started": "2026-01-01T00:00:00+00:00",
        "environment": {},
        **more,
    }


def ok(samples: Any, **more: Any) -> dict[str, Any]:
    return head(status="ok", boundaries={"end_to_end": {"samples_ns": samples}}, **more)


def decode(content: Any, kind: documents.Kind = "record") -> Any:
    text = content if isinstance(content, str) else json.dumps(content)
    return documents.decode(text.encode(), kind)


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_document_of_the_committed_bundles_is_read_and_written_back_equal(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        kinds = {name: kind_of(name) for name in archive.namelist() if name.endswith(".json")}
        read = {name: (kind, documents.decode(archive.read(name), kind)) for name, kind in kinds.items() if kind}
    assert {kind for kind, _ in read.values()} >= {"environment", "bandwidth"}
    for kind, document in read.values():
        again = documents.decode(msgspec.json.encode(document), kind)
        assert again == document


def test_the_published_schemas_are_those_of_the_types() -> None:
    folder = REPOSITORY / "workflow/inferprof/schemas"
    generated = {name: published.text(content) for name, content in published.schemas().items()}
    written = {name: (folder / name).read_text(encoding="utf-8") for name in generated}
    assert written == generated, "python -m inferprof.documents.published writes them anew"


@pytest.mark.parametrize("name", ["results", "bundle"])
def test_the_published_schemas_hold_of_what_is_read(name: str) -> None:
    import jsonschema

    content = json.loads((REPOSITORY / f"workflow/inferprof/schemas/{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(content)
    if name == "results":
        of_record = jsonschema.Draft202012Validator({**content, "$ref": "#/$defs/record"})
        assert of_record.is_valid(json.loads(RECORD.read_text(encoding="utf-8")))
        assert of_record.is_valid(head(status="failed", reason="out of memory"))
        assert not of_record.is_valid(head(status="failed"))
        assert not of_record.is_valid(head(status="ok"))


@pytest.mark.parametrize("kind", [kind for kind in documents.TYPES if kind not in (*OF_MACHINE, "record", "bundle")])
def test_a_failed_document_needs_a_reason_and_nothing_else(kind: documents.Kind) -> None:
    failed = {"status": "failed", "reason": "out of memory", "stage": "build", "notes": ["close: also that"]}
    assert decode(failed, kind).failure == "build: out of memory"
    for without in ({"status": "failed"}, {"status": "failed", "reason": " "}, {"status": "lost", "reason": "x"}):
        with pytest.raises(ValueError, match=": "):
            decode(without, kind)


def test_a_failed_record_needs_its_head_alone() -> None:
    record = decode(head(status="failed", reason="the graph was refused", stage="load", notes=["close: illegal"]))
    assert (record.status, facts(record.failure, "graph", "load"), record.notes) == (
        "failed",
        ["load", "graph", "refused"],
        ["close: illegal"],
    )
    for name in ("schema", "case", "round", "machine", "protocol", "started", "environment"):
        with pytest.raises(ValueError, match=name):
            decode({key: value for key, value in head(status="failed", reason="x").items() if key != name})


@pytest.mark.parametrize(
    "samples",
    [
        "[NaN]",
        "[Infinity]",
        "[-Infinity]",
        "[1e400]",
        "[1e-300]",
        "[0]",
        "[-5]",
        "[true]",
        "[null]",
        '["9"]',
        "[]",
        "{}",
    ],
)
def test_samples_are_finite_times_above_0(samples: str) -> None:
    with pytest.raises(ValueError, match=r"samples_ns|JSON|top level"):
        decode(json.dumps(ok("SAMPLES")).replace('"SAMPLES"', samples))


def test_what_a_driver_says_0_of_it_does_not_tell() -> None:
    gpu = {"name": "vGPU", "clock_sm_max_mhz": 0, "sm_count": 0, "memory_mib": 24_576}
    read = decode({"status": "ok", "gpus": [gpu]}, "environment").gpus[0]
    assert [facts(unknown.reason, "driver") for unknown in (read.clock_sm_max_mhz, read.sm_count)] == [
        ["driver", "0"]
    ] * 2
    assert read.memory_mib == 24_576


@pytest.mark.parametrize(("ns", "taken"), [(1, False), (99, False), (100, True), (1e9, True), (1e19, False)])
def test_no_inference_takes_less_than_reading_the_clock_does(ns: float, taken: bool) -> None:
    if taken:
        assert decode(ok([ns] * 3)).boundaries.end_to_end.samples_ns == [ns] * 3
        return
    with pytest.raises(ValueError, match=r"boundaries\.end_to_end"):
        decode(ok([ns] * 3))


@pytest.mark.parametrize(
    "more",
    [
        {"throughput": {"back_to_back": {"inferences": 5, "seconds": 0}}},
        {"throughput": {"back_to_back": {"inferences": True, "seconds": 1.0}}},
        {"throughput": {"pipelined": {"inferences": 5, "seconds": 1.0, "overlap": 1.5}}},
        {"host": {"yardstick_ns": [0], "yardstick_cpu_ns": [1], "steal": {"percent": 1}}},
        {"host": {"yardstick_ns": [1], "yardstick_cpu_ns": [1], "steal": {"percent": 101}}},
        {"telemetry": {"summary": {"throttled_share": -0.1}}},
        {"memory": {"host_rss_bytes": -1}},
        {"memory": {"graphs": {"not_measured": "x", "segments": [{**POOL, "largest_segment": []}]}}},
        {"round": -1},
        {"status": "maybe"},
        {"inputs": {"x": {"shape": [-1], "dtype": "float32"}}},
        {"inputs": {"x": {"shape": [1], "dtype": "half"}}},
        {"outputs": {"x": {"shape": [1], "dtype": "float32; rm"}}},
        {"telemetry": {"summary": {"power_w": {"median": 1e300}}}},
        {"telemetry": {"interval_s": 1e-300}},
        {"telemetry": {"samples": {"t_ns": [1, 2], "sm_mhz": [1]}}},
        {"telemetry": {"samples": {"t_ns": [1, None], "sm_mhz": [1, 2]}}},
        {"telemetry": {"samples": {"sm_mhz": [1, 2]}}},
        {"telemetry": {"samples": {"t_ns": ["a"]}}},
    ],
    ids=lambda more: json.dumps(more)[:40],
)
def test_numbers_are_in_their_ranges(more: dict[str, Any]) -> None:
    decode(ok([1e6]))
    with pytest.raises(ValueError, match=r": Expected|: Invalid|samples"):
        decode(ok([1e6]) | more)


def test_a_record_whose_self_check_failed_is_failed_whatever_its_status_says(tmp_path: Path) -> None:
    record = ok([1e6], checks={"outputs_match": {"passed": False, "detail": "all NaN"}, "other": {"passed": None}})
    path = tmp_path / "m/benchmark" / "/".join(CASE) / "r0.json"
    write_document(path, "record", record)
    content = documents.read(path, "record")
    assert (content.status, content.reason) == ("failed", "self-check outputs_match: all NaN")
    assert content.failure == "self-check outputs_match: all NaN"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("m/benchmark/vit/fp16/ort_cpu/default/b1/r0.json", None),
        ("results/m/benchmark/vit/fp16/ort_cpu/default/b1/r0.json", None),
        ("anywhere/r0.json", None),
        ("m/benchmark/vit/fp32/ort_cpu/default/b1/r0.json", "of the case vit/fp16/ort_cpu/default/b1, not of"),
        ("other/benchmark/vit/fp16/ort_cpu/default/b1/r0.json", "of the machine m, not of other"),
        ("m/benchmark/vit/fp16/ort_cpu/default/b1/r1.json", "of round 0, not of r1"),
    ],
)
def test_a_record_is_of_the_case_machine_and_round_that_its_path_names(
    tmp_path: Path, place: str, said: str | None
) -> None:
    write_document(tmp_path / place, "record", ok([1e6]))
    if said is None:
        assert documents.read(tmp_path / place, "record").machine == "m"
        return
    with pytest.raises(UserError, match=said):
        documents.read(tmp_path / place, "record")


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("watched", "m/capture/nsys/{}.record.json"),
        ("trtexec", "m/trtexec/{}.json"),
        ("diagnosis", "m/diagnosis/{}.json"),
    ],
)
def test_what_else_is_about_a_case_is_of_the_case_of_its_path(
    tmp_path: Path, kind: documents.Kind, place: str
) -> None:
    content = {"case": head()["case"], "machine": "m", "status": "failed", "reason": "x"}
    for case, fits in (("/".join(CASE), True), ("vit/fp16/ort_cpu/graph/b1", False)):
        path = tmp_path / place.format(case)
        write_document(path, kind, content)
        if fits:
            assert documents.read(path, kind).case.path == case
        else:
            with pytest.raises(UserError, match="of the case"):
                documents.read(path, kind)


@pytest.mark.parametrize(
    ("kind", "place", "other", "content"),
    [
        ("cost", "onnx/m/fp16.b8.cost.json", "onnx/m/fp16.b1.cost.json", {"shape": "b8_s128"}),
        ("audit", "onnx/m/fp16.audit.json", "onnx/m/int8.audit.json", {"precision": "fp16"}),
        ("accuracy", "onnx/m/fp16.accuracy.json", "onnx/m/int8.accuracy.json", {"precision": "fp16"}),
        ("environment", "box/environment.json", "other/environment.json", {"machine": "box"}),
        ("trail", "box/best/vit.json", "box/best/bert.json", {"model": "vit"}),
    ],
)
def test_what_is_about_a_graph_a_machine_or_a_search_is_of_the_one_of_its_path(
    tmp_path: Path, kind: documents.Kind, place: str, other: str, content: dict[str, Any]
) -> None:
    for name in (place, other):
        write_document(tmp_path / name, kind, {"status": "failed", "reason": "x", **content})
    assert documents.read(tmp_path / place, kind, tmp_path).reason == "x"
    with pytest.raises(UserError, match="it is of the"):
        documents.read(tmp_path / other, kind, tmp_path)


def test_a_case_under_load_is_of_the_policy_of_its_path(tmp_path: Path) -> None:
    content = serving_records.content_of("steady", "/".join(CASE), "m")
    for policy, fits in (("steady", True), ("bursts", False)):
        path = tmp_path / f"m/serving/{policy}/{'/'.join(CASE)}.json"
        write_document(path, "serving", content)
        if fits:
            assert documents.read(path, "serving").policy.name == policy
        else:
            with pytest.raises(UserError, match="steady, not"):
                documents.read(path, "serving")


def test_the_name_of_the_folder_given_says_nothing_of_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "before/benchmark" / "/".join(CASE) / "r0.json"
    write_document(path, "record", ok([1e6]))
    assert documents.read(path, "record", tmp_path / "before").machine == "m"


def test_what_inferprof_would_not_read_is_not_written(tmp_path: Path) -> None:
    for content in (ok([float("nan")]), ok([0]), head(status="failed")):
        with pytest.raises(ValueError, match=r"JSON|Expected|reason"):
            write_document(tmp_path / "r0.json", "record", content)
    assert not list(tmp_path.iterdir())


# --- damage ----------------------------------------------------------------------------------------------------

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.just([]),
    st.just({}),
    st.just(10**400),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values, of long lists the first ones."""
    entries = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    return [path, *(place for key, entry in entries for place in places(entry, (*path, key)))]


def damaged(content: Any, place: tuple[Any, ...], junk: Any, drop: bool) -> Any:
    """The content with another value at a place, or none."""
    if not place:
        return junk
    copy = json.loads(json.dumps(content))
    parent = copy
    for key in place[:-1]:
        parent = parent[key]
    if drop:
        del parent[place[-1]]
    else:
        parent[place[-1]] = junk
    return copy


def samples_of_kinds() -> dict[documents.Kind, Any]:
    """A document of each kind, out of the committed bundles."""
    contents: dict[documents.Kind, Any] = {}
    for bundle in BUNDLES:
        with zipfile.ZipFile(bundle) as archive:
            for name in archive.namelist():
                kind = kind_of(name) if name.endswith(".json") else None
                if kind and kind not in contents:
                    contents[kind] = json.loads(archive.read(name))
    return contents


CONTENTS = samples_of_kinds()


@pytest.mark.parametrize("kind", sorted(CONTENTS))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_document_is_read_or_refused_in_one_line(tmp_path: Path, kind: documents.Kind, data: Any) -> None:
    place = data.draw(st.sampled_from(places(CONTENTS[kind])))
    text = json.dumps(damaged(CONTENTS[kind], place, data.draw(JUNK), data.draw(st.booleans())))
    cut = data.draw(st.one_of(st.just(len(text)), st.integers(0, len(text))))
    path = tmp_path / "damaged.json"
    path.write_text(text[:cut], encoding="utf-8")
    try:
        document = documents.read(path, kind)
    except UserError as error:
        assert "\n" not in str(error) and str(error).startswith(str(path)) and len(str(error)) < 600
    else:
        content = msgspec.to_builtins(document) if isinstance(document, documents.Document) else document
        write_document(path, kind, content)
        assert documents.read(path, kind) == document


@pytest.mark.parametrize("content", [b"", b"\xff", b'"\xff"', b"[" * 100_000, b"9" * 5000, b'{"a": "\\ud800"}'])
def test_what_is_no_json_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r0.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as refused:
        documents.read(path, "record")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("audit", "macs"),
        ("audit", "shape"),
        ("cost", "inputs"),
        ("cost", "outputs"),
        ("partition", "looped"),
        ("diagnosis", "total"),
    ],
)
def test_what_may_be_null_must_be_said_all_the_same(kind: documents.Kind, name: str) -> None:
    without = {key: value for key, value in CONTENTS[kind].items() if key != name}
    assert getattr(decode(without | {name: None}, kind), name) is None
    with pytest.raises(ValueError, match=name):
        decode(without, kind)
    assert getattr(decode(without | {"status": "failed", "reason": "x"}, kind), name) is None


def test_what_need_not_be_there_may_be_null(tmp_path: Path) -> None:
    content = ok([1e6], host=None, telemetry=None, memory={"graphs": None, "device_bytes": None})
    path = tmp_path / "r0.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert msgspec.to_builtins(documents.read(path, "record").memory) == {}


def test_memory_that_others_gave_back_is_none_of_the_case() -> None:
    read = decode(ok([1e6], memory={"device_bytes": -52_428_800}), "record")
    assert read.memory.device_bytes is None


@pytest.mark.parametrize(("name", "kind"), [("record", "record"), ("watched", "watched")])
def test_what_the_program_wrote_of_cases_that_failed_on_a_gpu_is_read(name: str, kind: documents.Kind) -> None:
    content = documents.read(REPOSITORY / f"tests/data/failed/{name}.json", kind)
    assert content.status == "failed" and content.stage in ("load", "first inference")
    assert content.reason.startswith(("ONNX Runtime: ", "CudaError: "))
    assert all(note.startswith("close: ") for note in content.notes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"curve": {}}, "ends at a batch of 0, and max_batch is 8"),
        ({"curve": {"4": [6e6]}}, "ends at a batch of 4, and max_batch is 8"),
        ({"curve": {"8": []}}, "length >= 1"),
        ({"curve": {"\u00b2": [3e6], "8": [1e7]}}, "matching regex"),
        ({"curve": {"0": [3e6], "8": [1e7]}}, "matching regex"),
        ({"loads": [serving_records.load(latency={"p99": {"value_ns": 0}})]}, ">= 1"),
        ({"loads": [serving_records.load(latency={"p99": {"value_ns": 5, "low_ns": 6}})]}, "6 to 5"),
        ({"loads": [serving_records.load(latency={"p99": {"value_ns": 5, "high_ns": 4}})]}, "0 to 4"),
        ({"loads": [serving_records.load(batches={"many": 3})]}, "matching regex"),
    ],
)
def test_a_case_under_load_that_does_not_agree_with_itself_is_one_line(change: dict[str, Any], said: str) -> None:
    content = serving_records.content_of("slow", "vit/fp32/ort_cpu/default/b8", "m") | change
    with pytest.raises(ValueError) as refused:
        decode(content, "serving")
    assert said in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(("sizes", "said"), [([], "length >= 1"), (["x"], "matching regex")])
def test_an_operation_between_gpus_has_sizes_in_bytes(sizes: list[str], said: str) -> None:
    message = {"ns": 31_000.0, "spread_ns": 700.0, "gb_per_s": 0.03}
    content = {"status": "ok", "reason": None, "method": "m", "ranks": 2, "through": {"library": "nccl"}}
    operations = {"AllReduce": {"by_size": dict.fromkeys(sizes, message)}}
    with pytest.raises(ValueError) as refused:
        decode({**content, "operations": operations, "copies": {}, "topology": {"not_measured": "no GPU"}}, "links")
    assert said in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("given", ["tensor", 2, {}, None, {"tensor": "2"}, {"tensor": 0}, {"tensor": 2, "data": 2}])
def test_a_record_that_is_ok_says_how_its_case_was_divided_and_a_failed_one_what_was_asked(given: Any) -> None:
    decode(ok([1e6]) | {"options": {"parallel": {"tensor": 2}}})
    with pytest.raises(ValueError, match="parallel"):
        decode(ok([1e6]) | {"options": {"parallel": given}})
    decode(head(status="failed", reason="x") | {"options": {"parallel": given}})
