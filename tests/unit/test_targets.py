"""Options become flags that the command line reads back as they were."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import yaml
from tests.unit.facts import states

from inferprof import commands, study, targets
from inferprof.case import OptionValue
from inferprof.documents.serving import ServingPolicy
from inferprof.machine.hardware import Gpu, Machine
from inferprof.model import model_files, model_spec


@pytest.mark.parametrize(
    "value",
    ["max", "yes", "1e5", "null", "1, 2", "a: b", "ü'\"", 32, 32.0, 0.5, 1e-05, True, False, ["b1", "b64"]],
    ids=repr,
)
def test_an_option_survives_the_command_line(value: OptionValue) -> None:
    words = shlex.split(targets.flags({"option": value}))
    args = commands.parser().parse_args(["quantize", "int8", "x.onnx", "--spec", "m.yaml", "--out", "y.onnx", *words])
    assert dict(args.set) == {"option": value}


def test_no_options_are_no_flags() -> None:
    assert targets.flags({}) == ""


@pytest.mark.parametrize(("tools", "asked"), [({"trtexec": "/opt/trtexec"}, True), ({}, False)])
def test_trtexec_is_asked_for_each_case_of_tensorrt_where_the_machine_has_one(
    repository: Path, tools: dict[str, str], asked: bool
) -> None:
    content = yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))
    gpu = Gpu("NVIDIA B200", (10, 0), 180 << 30, "GPU-1", "580.159.04")
    packages = {"onnxruntime-gpu": "1.31.1", "tensorrt": "10.13.3.9"}
    machine = Machine(gpu=gpu, packages=packages, tools=tools, label="box")
    keys = {
        "backends": ["tensorrt", "ort_cuda"],
        "models": ["vit_tiny"],
        "precisions": ["fp16"],
        "shapes": ["b1", "b8"],
    }
    planned = study.plan({**content, **keys, "variants": [{"name": "default"}]}, repository / "models", machine)
    wanted = [f"results/box/trtexec/vit_tiny/fp16/tensorrt/default/{shape}.json" for shape in ("b1", "b8")]
    assert targets.second_clocks(planned) == (wanted if asked else [])
    assert set(targets.report_inputs(planned)) >= set(targets.second_clocks(planned))


def test_of_two_tracers_one_watches_a_case_unless_it_is_divided_and_a_table_that_is_there_is_read(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))
    gpu = Gpu("NVIDIA H200", (9, 0), 141 << 30, "GPU-1", "580.159.04")
    packages = {"torch": "2.11.0", "transformers": "5.0"}
    machine = Machine(gpu=gpu, packages=packages, tools={"nsys": "/opt/nsys"}, label="box", gpus=2)
    keys = {"backends": ["torch_eager"], "models": ["minilm"], "precisions": ["fp16"], "shapes": ["b1"]}
    variants = [{"name": "default"}, {"name": "two", "parallel": {"tensor": 2}}]
    profilers = {"profilers": ["nsys", "kineto"], "captures": "all"}
    planned = study.plan({**content, **keys, **profilers, "variants": variants}, repository / "models", machine)

    def tables() -> set[str]:
        return {f"{path.parts[3]} {path.parts[7]}" for path in map(Path, targets.tables(planned))}

    monkeypatch.chdir(tmp_path)
    assert tables() == {"nsys default", "nsys two", "kineto two"}
    assert len(targets.captures(planned, "kineto")) == 2
    (there,) = (path for path in targets.captures(planned, "kineto") if "default" in path)
    table = Path(there.replace("/capture/", "/table/")).with_suffix("").with_suffix(".parquet")
    table.parent.mkdir(parents=True)
    table.touch()
    assert tables() == {"nsys default", "nsys two", "kineto two", "kineto default"}


@pytest.mark.parametrize(("packages", "asked"), [({"tensorrt-rtx": "1.7.1.116"}, True), ({}, False)])
def test_a_partition_is_asked_for_each_graph_of_an_engine_where_the_parser_is_installed(
    repository: Path, packages: dict[str, str], asked: bool
) -> None:
    content = yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))
    gpu = Gpu("NVIDIA B200", (10, 0), 180 << 30, "GPU-1", "580.159.04")
    machine = Machine(gpu=gpu, packages={"onnxruntime-gpu": "1.31.1", "tensorrt": "10.13.3.9", **packages})
    keys = {
        "backends": ["tensorrt", "ort_cuda"],
        "models": ["vit_tiny"],
        "precisions": ["fp32", "fp16"],
        "shapes": ["b1", "b8"],
        "target": [],
    }
    planned = study.plan({**content, **keys}, repository / "models", machine)
    wanted = [f"results/onnx/vit_tiny/{precision}.partition.json" for precision in ("fp32", "fp16")]
    assert targets.partitions(planned) == (wanted if asked else [])
    assert set(targets.report_inputs(planned)) >= set(targets.partitions(planned))


@pytest.mark.parametrize("gpu", [Gpu("NVIDIA B200", (10, 0), 180 << 30, "GPU-1", "580.159.04"), None])
def test_a_machine_has_ceilings_and_each_graph_is_counted_at_each_shape(repository: Path, gpu: Gpu | None) -> None:
    content = yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))
    machine = Machine(gpu=gpu, packages={"onnxruntime-gpu": "1.31.1"}, label="box")
    keys = {
        "backends": ["ort_cpu", "ort_cuda"],
        "models": ["minilm"],
        "precisions": ["fp32", "fp16"],
        "shapes": ["b1"],
    }
    planned = study.plan({**content, **keys}, repository / "models", machine)
    wanted = [f"results/onnx/minilm/{precision}.b1_s128.cost.json" for precision in ("fp32", "fp16")]
    assert targets.costs(planned) == wanted
    asked = set(targets.report_inputs(planned))
    assert asked >= set(targets.costs(planned))
    assert "results/box/ceilings.json" in asked
    assert ("results/box/bandwidth.json" in asked) == (gpu is not None)


def test_the_cases_of_a_model_are_diagnosed_from_all_that_was_measured_of_it(repository: Path) -> None:
    content = yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))
    gpu = Gpu("NVIDIA H100 80GB HBM3", (9, 0), 80 << 30, "GPU-1", "580.159.04")
    packages = {"onnxruntime-gpu": "1.31.1"}
    machine = Machine(gpu=gpu, packages=packages, tools={"nsys": "/opt/nsys"}, label="box")
    keys = {"backends": ["ort_cuda"], "precisions": ["fp16"], "shapes": ["b1", "b8"], "profilers": ["nsys"]}
    variants = [{"name": "default"}]
    planned = study.plan({**content, **keys, "variants": variants}, repository / "models", machine)
    inputs = targets.diagnosis_inputs(planned, "vit_tiny")
    cases = [f"vit_tiny/fp16/ort_cuda/default/{batch}" for batch in ("b1", "b8")]
    assert [file for file in inputs if "/table/" in file] == [
        f"results/box/table/nsys/{case}.parquet" for case in cases
    ]
    assert [file for file in inputs if "/benchmark/" in file] == [
        f"results/box/benchmark/{case}/r{n}.json" for n in range(3) for case in cases
    ]
    assert {"results/box/environment.json", "results/box/bandwidth.json"} <= set(inputs)
    assert not any("minilm" in file for file in inputs)
    assert "results/box/diagnosis/vit_tiny" in targets.report_inputs(planned)


def test_what_can_be_compiled_ahead_is_asked_for_before_further_rounds_but_not_for_the_first_answer(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")  # torch.compile needs a C++ compiler
    content = yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))
    gpu = Gpu("NVIDIA H100 80GB HBM3", (9, 0), 80 << 30, "GPU-1", "580.159.04")
    machine = Machine(gpu=gpu, packages={"onnxruntime-gpu": "1.31.1", "torch": "2.13.0"}, label="box")
    variants = [{"name": "default"}, {"name": "tuned", "compile_mode": "max-autotune"}]
    keys = {"backends": ["ort_cpu", "torch_compile"], "models": ["minilm"], "precisions": ["fp32"], "shapes": ["b1"]}
    planned = study.plan({**content, **keys, "variants": variants}, repository / "models", machine)
    facts = "results/box/engine/minilm/fp32/torch_compile/default/b1_s128.build.json"
    assert targets.compiled(planned) == [facts]
    assert facts in targets.once(planned)
    assert facts in targets.report_inputs(planned)
    assert targets.first_records(planned) == ["results/box/benchmark/minilm/fp32/ort_cpu/default/b1_s128/r0.json"]


def test_what_broke_before_does_not_keep_the_others_from_further_rounds(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))
    keys = {"backends": ["ort_cpu"], "models": ["minilm"], "precisions": ["fp32", "fp16"], "shapes": ["b1", "b8"]}
    machine = Machine(gpu=None, packages={"onnxruntime-gpu": "1.31.1"}, label="box")
    planned = study.plan({**content, **keys, "variants": [{"name": "default"}]}, repository / "models", machine)
    monkeypatch.chdir(tmp_path)
    whole = targets.once(planned)
    log = tmp_path / "results/log/box/benchmark/minilm/fp32/ort_cpu/default/b8_s128/r0.log"
    log.parent.mkdir(parents=True)
    log.touch()
    record = "results/box/benchmark/minilm/fp32/ort_cpu/default/b8_s128/r0.json"
    assert set(whole) - set(targets.once(planned)) == {record}
    conversion = tmp_path / "results/log/onnx/minilm/fp16.log"
    conversion.parent.mkdir(parents=True)
    conversion.touch()
    assert all("fp32" in file for file in targets.once(planned))
    assert len(targets.once(planned)) == 4
    (tmp_path / record).parent.mkdir(parents=True)
    (tmp_path / record).touch()
    assert record in targets.once(planned)


def test_of_a_model_that_is_not_exported_no_graph_is_asked_for(repository: Path) -> None:
    content = yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))
    gpu = Gpu("NVIDIA H100", (9, 0), 80 << 30, "GPU-1", "580.159.04")
    machine = Machine(gpu=gpu, packages={"torch": "2.11.0", "onnxruntime-gpu": "1.31.1"}, label="box")
    keys = {
        "models": ["llama_tiny"],
        "precisions": ["bf16"],
        "backends": ["ort_cuda", "torch_eager"],
        "shapes": ["b1"],
    }
    planned = study.plan(content | keys, repository / "models", machine)
    assert {case.backend for case in planned.cases()} == {"torch_eager"}
    assert any(states(one.reason, "ort_cuda", "ONNX", "llama_tiny", "not") for one in planned.planned)
    assert targets.onnx(planned) == targets.costs(planned) == []
    assert not [file for file in targets.report_inputs(planned) if file.startswith("results/onnx/")]
    assert len(targets.records(planned)) == 2 * 3


def test_weights_beside_an_onnx_file_are_inputs_of_whatever_is_made_of_it(tmp_path: Path) -> None:
    onnx.save_model(
        onnx.parser.parse_model(
            '<ir_version: 9, opset_import: ["" : 20]> g (float[b, 64] x) => (float[b, 64] y) <float[64, 64] w> '
            "{ y = MatMul(x, w) }"
        ),
        tmp_path / "none.onnx",
    )
    model = onnx.load(tmp_path / "none.onnx")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w"))
    onnx.save_model(
        model, tmp_path / "own.onnx", save_as_external_data=True, location="own.weights", size_threshold=0
    )
    assert model_files.all_of(tmp_path / "own.onnx") == [tmp_path / "own.weights"]


def test_planning_parses_an_onnx_file_once_while_it_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.onnx"
    text = '<ir_version: 9, opset_import: ["" : 20]> g (float[b, 64] x) => (float[b, 64] y) { y = Relu(x) }'
    onnx.save_model(onnx.parser.parse_model(text), path)
    parsed: list[Path] = []
    load = onnx.load

    def counted(file: Path, **options: bool) -> onnx.ModelProto:
        parsed.append(file)
        return load(file, **options)

    monkeypatch.setattr(onnx, "load", counted)
    assert model_spec.load(path).symbols == ("b",)
    assert model_files.all_of(path) == [] and model_files.is_exported(path) and not model_spec.is_unsized(path)
    assert parsed == [path]
    onnx.save_model(onnx.parser.parse_model(text.replace("64", "128")), path)
    assert model_spec.load(path).inputs[0].dims == ("b", 128)
    assert parsed == [path, path]


def test_the_trace_of_a_policy_is_a_file_that_it_is_made_from() -> None:
    policy = ServingPolicy(name="p", policy="none", slo_ms=1)
    traced = ServingPolicy(name="p", policy="none", slo_ms=1, arrivals="trace:data/moments.txt")
    assert (targets.trace_files(policy), targets.trace_files(traced)) == ([], ["data/moments.txt"])
