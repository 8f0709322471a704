"""A config times a machine gives cases, each run or refused with a reason."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.facts import mentions, naming

from inferprof import planning, registry, targets
from inferprof import study as studies
from inferprof.case import LAST_DUELS, OF_DUELS, Case
from inferprof.errors import UserError
from inferprof.files import write_document
from inferprof.machine.hardware import Gpu, Machine
from inferprof.model.model_spec import package_roots

H100 = Gpu("NVIDIA H100 80GB HBM3", (9, 0), 80 << 30, "GPU-1", "580.159.04")
PACKAGES = {"onnxruntime-gpu": "1.31.1", "torch": "2.13.0", "tensorrt-rtx": "1.7.1.116"}
GPU_BOX = Machine(gpu=H100, packages=PACKAGES)
LAPTOP = Machine(gpu=None, packages=PACKAGES, cpu="AMD EPYC 9B14 96-Core Processor")


@pytest.fixture(scope="module")
def config(repository: Path) -> dict[str, Any]:
    """The default config."""
    content = yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def plan(config: dict[str, Any], repository: Path, machine: Machine, **keys: Any) -> studies.Study:
    return studies.plan({**config, **keys}, repository / "models", machine)


def test_without_a_gpu_the_default_study_runs_on_the_cpu_and_refuses_the_rest(
    config: dict[str, Any], repository: Path
) -> None:
    study = plan(config, repository, LAPTOP)
    assert {case.backend for case in study.cases()} == {"ort_cpu", "torch_eager", "torch_compile"} & {
        case.backend for case in study.cases()
    }
    reasons = {p.case.backend: p.reason for p in study.planned if p.case.variant == "default" and p.reason}
    assert "no GPU" in reasons["ort_cuda"] and "no GPU" in reasons["tensorrt_rtx"]


def test_on_a_gpu_the_same_config_runs_onnx_runtime_with_cuda_and_its_graph(
    config: dict[str, Any], repository: Path
) -> None:
    cases = plan(config, repository, GPU_BOX).cases()
    assert Case("vit_tiny", "fp16", "ort_cuda", "graph", "b8") in cases
    assert Case("minilm", "fp32", "torch_eager", "default", "b8_s128") in cases


def test_the_first_answer_waits_for_no_runtime_that_imports_compiles_or_builds_for_long(
    config: dict[str, Any], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")  # torch.compile needs a C++ compiler
    first = plan(
        config, repository, GPU_BOX, backends=["torch_compile", "torch_eager", "ort_cuda", "tensorrt_rtx"]
    ).first_cases
    assert first == {Case("vit_tiny", "fp32", "ort_cuda", "default", "b1")}
    alone = plan(config, repository, GPU_BOX, backends=["torch_compile"], baseline="fp32/torch_compile/default")
    assert alone.first_cases == {Case("vit_tiny", "fp32", "torch_compile", "default", "b1")}


@pytest.mark.parametrize(
    ("machine", "rounds", "brief"), [(GPU_BOX, 3, True), (GPU_BOX, 1, False), (LAPTOP, 3, False)]
)
def test_the_first_of_several_rounds_on_a_gpu_is_a_brief_pass(
    config: dict[str, Any], repository: Path, machine: Machine, rounds: int, brief: bool
) -> None:
    study = plan(config, repository, machine, protocol={"rounds": rounds, "cpu_rounds": rounds})
    passes = [study.brief(round_) for round_ in range(rounds)]
    assert passes == [brief, *[False] * (rounds - 1)]
    flags = [targets.protocol_flags(study, round_) for round_ in range(rounds)]
    assert ["--first-pass" in own.split() for own in flags] == passes


def test_a_round_of_a_duel_measures_the_boundary_of_the_search_alone(
    config: dict[str, Any], repository: Path
) -> None:
    study = plan(config, repository, GPU_BOX, best={"boundary": "device"})
    assert [study.only(number) for number in (0, 2, OF_DUELS + 1)] == [None, None, "device"]
    chosen, last = (targets.protocol_flags(study, first + 1).split() for first in (OF_DUELS, LAST_DUELS))
    assert chosen[-4:] == ["--first-pass", "--only", "device", "--quiet-core"]
    assert last == chosen[:-1]


def test_every_case_of_the_matrix_is_accounted_for(config: dict[str, Any], repository: Path) -> None:
    study = plan(config, repository, LAPTOP)
    matrix = [len(config[key]) for key in ("models", "precisions", "backends", "variants", "shapes")]
    product = 1
    for size in matrix:
        product *= size
    assert len(study.planned) == product
    assert all(p.reason for p in study.planned if p.outcome == "refused")
    assert studies.cases_csv(study).count("\n") == product + 1


def test_an_exclusion_keeps_its_reason(config: dict[str, Any], repository: Path) -> None:
    exclude = [{"backend": "ort_cpu", "precision": "int8", "reason": "not of interest"}]
    study = plan(config, repository, LAPTOP, exclude=exclude)
    reasons = {p.reason for p in study.planned if p.case.backend == "ort_cpu" and p.case.precision == "int8"}
    assert [mentions(reason, "excluded", "not of interest") for reason in reasons] == [True]


def test_an_exclusion_of_a_machine_alone_leaves_out_all_of_its_cases(
    config: dict[str, Any], repository: Path
) -> None:
    exclude = [{"machine": "cpu-*", "reason": "too slow"}]
    study = plan(config, repository, LAPTOP, exclude=exclude)
    assert [mentions(reason, "excluded", "too slow") for reason in {p.reason for p in study.planned}] == [True]
    assert study.refused_profilers() == dict.fromkeys(("kineto", "nsys", "ort_profile"), "no case runs")
    assert study.ahead_of_time() == plan(config, repository, LAPTOP).ahead_of_time()
    assert plan(config, repository, GPU_BOX, exclude=exclude).cases() == plan(config, repository, GPU_BOX).cases()


def test_a_profiler_can_be_kept_from_some_of_the_cases(config: dict[str, Any], repository: Path) -> None:
    machine = Machine(gpu=H100, packages=PACKAGES, tools={"nsys": "nsys", "ncu": "ncu"})
    exclude = [{"profiler": "ncu", "shape": "b8", "reason": "it takes long"}]
    every = plan(config, repository, machine, profilers=["nsys", "ncu"])
    study = plan(config, repository, machine, profilers=["nsys", "ncu"], exclude=exclude)
    assert study.cases() == every.cases()
    left_out = set(every.captures()) - set(study.captures())
    assert {(profiler, case.shape) for profiler, case in left_out} == {("ncu", "b8"), ("ncu", "b8_s128")}
    assert study.refused_profilers() == {}


def test_an_exclusion_names_several(config: dict[str, Any], repository: Path) -> None:
    one_by_one = [{"precision": name, "shape": "b8", "reason": "too slow"} for name in ("fp32", "int8")]
    together = [{"precision": ["fp32", "int8"], "shape": ["b8"], "reason": "too slow"}]
    planned = [plan(config, repository, LAPTOP, exclude=exclude).planned for exclude in (one_by_one, together)]
    assert planned[0] == planned[1] != plan(config, repository, LAPTOP).planned


def test_an_exclusion_names_several_profilers(config: dict[str, Any], repository: Path) -> None:
    exclude = [{"profiler": ["nsys", "ncu"], "reason": "not today"}]
    study = plan(config, repository, GPU_BOX, profilers=["nsys", "ncu"], exclude=exclude)
    refused = study.refused_profilers()
    assert set(refused) == {"nsys", "ncu"}
    assert all(mentions(reason, "excluded", "not today") for reason in refused.values())


def test_a_profiler_that_is_excluded_everywhere_says_why(config: dict[str, Any], repository: Path) -> None:
    exclude = [{"profiler": "nsys", "reason": "not today"}]
    study = plan(config, repository, GPU_BOX, profilers=["nsys"], exclude=exclude)
    assert study.captures() == []
    refused = study.refused_profilers()
    assert set(refused) == {"nsys"} and mentions(refused["nsys"], "excluded", "not today")


def test_an_excluded_shape_is_written_as_under_shapes(config: dict[str, Any], repository: Path) -> None:
    study = plan(config, repository, LAPTOP, exclude=[{"shape": "b8", "reason": "too large"}])
    excluded = {p.case.shape for p in study.planned if p.reason == "excluded by the config: too large"}
    assert excluded == {"b8", "b8_s128"}
    assert study.ahead_of_time() == []


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"backend": "tensorRT"}, "unknown backends in exclude: tensorRT; known: ort_cpu, "),
        ({"model": "vit"}, "unknown models in exclude: vit; known: bert_base, "),
        ({"profiler": "nys"}, "unknown profilers in exclude: nys; known: kineto, "),
        ({"variant": "grph"}, "unknown variants in exclude: grph; known: default, graph"),
        ({"shape": "8"}, "shape '8' is not a shape"),
    ],
)
def test_an_exclusion_that_would_exclude_nothing_is_refused(
    config: dict[str, Any], repository: Path, entry: dict[str, str], message: str
) -> None:
    with pytest.raises(UserError) as refused:
        plan(config, repository, LAPTOP, exclude=[{**entry, "reason": "no"}])
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shapes": ["b1", "b8_q64"]}, "config: shapes: b8_q64 fits no model of the study, whose symbols are "),
        ({"target": ["12"]}, "(a compute capability: 12.0)"),
        ({"study": "a/b"}, "(name of the study: its folder under results/reports/)"),
    ],
)
def test_a_value_that_is_none_is_refused_with_what_it_should_be(
    config: dict[str, Any], repository: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as refused:
        plan(config, repository, LAPTOP, **change)
    assert message in str(refused.value)


def test_all_models_that_have_to_be_mended_are_named_at_once(config: dict[str, Any], tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / f"{name}.yaml").write_text("source: nowhere\n", encoding="utf-8")
    with pytest.raises(UserError) as refused:
        studies.plan({**config, "models": ["first", "second"]}, tmp_path, with_tools())
    _, *lines = str(refused.value).splitlines()
    assert [name in line for name, line in zip(("first.yaml", "second.yaml"), lines, strict=True)] == [True, True]


def test_a_config_that_holds_nothing_is_refused(repository: Path) -> None:
    with pytest.raises(UserError, match=naming("nothing", "no mapping")):
        studies.plan(None, repository / "models", LAPTOP)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("machine", "capability"),
    [
        *(("aot-sm100", (10, 0)), ("aot-sm103", (10, 3)), ("aot-sm110", (11, 0)), ("aot-sm121", (12, 1))),
        *(("aot-sm120", (12, 0)), ("aot-sm89", (8, 9)), ("aot-sm9", None), ("h100-sm90-1", None)),
    ],
)
def test_only_a_folder_of_ahead_of_time_engines_names_a_target(machine: str, capability: Any) -> None:
    assert studies.aot_capability(machine) == capability


def test_engines_are_built_ahead_of_time_for_each_target(config: dict[str, Any], repository: Path) -> None:
    study = plan(config, repository, LAPTOP, target=["12.0", "8.9"])
    assert Counter(machine for machine, _ in study.ahead_of_time()) == {"aot-sm120": 6, "aot-sm89": 6}


def test_a_torch_only_format_of_an_onnx_model_is_refused_by_name(
    config: dict[str, Any], repository: Path, tmp_path: Path
) -> None:
    inputs = [{"name": "x", "dtype": "float32", "dims": ["b", 8]}]
    spec = {"source": "onnx", "onnx": "mine.onnx", "inputs": inputs}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    (tmp_path / "mine.onnx").write_bytes(b"\0")
    study = studies.plan({**config, "models": ["mine"], "precisions": ["fp32", "nvfp4_sparse"]}, tmp_path, LAPTOP)
    assert study.onnx() == [("mine", "fp32")]
    reason = next(p.reason for p in study.planned if p.case.precision == "nvfp4_sparse")
    assert mentions(reason, "nvfp4_sparse", "torch model", "mine is an ONNX")


def test_the_folder_of_a_machine_names_gpu_and_library_versions() -> None:
    older = Machine(gpu=H100, packages={**PACKAGES, "torch": "2.11.0"})
    assert GPU_BOX.slug.startswith("h100-80gb-hbm3-sm90-")
    assert LAPTOP.slug.startswith("cpu-epyc-9b14-")
    assert GPU_BOX.slug != older.slug
    assert Machine(gpu=H100, label="lab").slug == "lab"


def test_a_threshold_that_no_check_has_is_refused(config: dict[str, Any], repository: Path) -> None:
    with pytest.raises(UserError, match=naming("thresholds launchbound", "launch_bound")):
        plan(config, repository, LAPTOP, thresholds={"launchbound": 0.2})
    assert plan(config, repository, LAPTOP, thresholds={"launch_bound": 0.2}).config["thresholds"]


def test_selections_are_lists_so_that_no_default_leaks_into_a_study(config: dict[str, Any]) -> None:
    # Snakemake merges mappings of two config files and replaces lists. Settings may be merged: a study gives a few.
    assert {key for key, value in config.items() if isinstance(value, dict)} == {
        "protocol",
        "thresholds",
        "answer",
    }


def test_rounds_run_one_after_another_with_their_cases_in_seeded_random_order() -> None:
    cases = [Case("m", "fp32", "ort_cpu", "default", f"b{batch}") for batch in range(1, 30)]
    orders = [sorted(cases, key=lambda case: -studies.priority(case, round_, 0)) for round_ in (0, 1)]
    assert min(studies.priority(case, 0, 0) for case in cases) > max(studies.priority(case, 1, 0) for case in cases)
    assert orders[0] != orders[1] != cases
    assert orders[0] == sorted(cases, key=lambda case: -studies.priority(case, 0, 0))


@pytest.mark.parametrize(("machine", "capability"), [("aot-sm120", (12, 0)), ("aot-sm89", (8, 9)), ("lab", None)])
def test_the_folder_of_engines_for_another_gpu_says_which(machine: str, capability: tuple[int, int] | None) -> None:
    assert studies.aot_capability(machine) == capability
    assert capability is None or studies.aot_machine(capability) == machine


def test_results_that_cannot_be_written_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match=naming("results", "not a folder")):
        studies.check_writable(tmp_path / "results")


@pytest.mark.parametrize("machine", [LAPTOP, GPU_BOX], ids=["laptop", "gpu"])
@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "studies").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_study_of_the_repository_can_be_planned(
    config: dict[str, Any], repository: Path, machine: Machine, path: Path
) -> None:
    if path.stem == "detector-latency" and not package_roots("rapidocr"):
        pytest.skip("rapidocr, which carries the detector's file, is not installed")
    study = plan(config, repository, machine, **yaml.safe_load(path.read_text(encoding="utf-8")))
    assert study.name == path.stem
    assert all(p.reason for p in study.planned if p.outcome == "refused")


def with_tools(*tools: str) -> Machine:
    return Machine(gpu=H100, packages=PACKAGES, tools={tool: f"/opt/{tool}" for tool in tools})


def test_a_profiler_that_runs_after_another_watches_the_same_cases(config: dict[str, Any], repository: Path) -> None:
    study = plan(config, repository, with_tools("nsys", "ncu"), profilers=["nsys", "ncu"])
    by_tool = {tool: [case for name, case in study.captures() if name == tool] for tool in ("nsys", "ncu")}
    assert by_tool["ncu"] == by_tool["nsys"] != []
    assert study.refused_profilers() == {}


@pytest.mark.parametrize(
    ("tools", "names", "reason"),
    [
        (("nsys", "ncu"), ["ncu"], "ncu: nsys or kineto tells it where to look; put one into `profilers` too"),
        (
            ("ncu",),
            ["nsys", "ncu"],
            "ncu: runs after nsys, refused: nsys: not on PATH; install Nsight Systems",
        ),
        (("nsys",), ["nsys", "ncu"], "ncu: not on PATH; install Nsight Compute"),
    ],
)
def test_a_profiler_whose_predecessor_does_not_run_is_refused_by_name(
    config: dict[str, Any], repository: Path, tools: tuple[str, ...], names: list[str], reason: str
) -> None:
    study = plan(config, repository, with_tools(*tools), profilers=names)
    assert reason in study.refused_profilers()["ncu"]
    assert "ncu" not in {name for name, _ in study.captures()}


def test_kineto_tells_where_to_look_where_there_is_no_nsys(config: dict[str, Any], repository: Path) -> None:
    case = Case("vit_tiny", "fp16", "ort_cuda", "default", "b8")
    names = ["nsys", "kineto", "ncu"]
    study = plan(config, repository, with_tools("ncu"), profilers=names)
    assert ("ncu", case) in study.captures()
    assert study.before("ncu", case) == "kineto"
    assert plan(config, repository, with_tools("nsys", "ncu"), profilers=names).before("ncu", case) == "nsys"
    assert study.before("kineto", case) is None
    assert plan(config, repository, LAPTOP).before("ncu", case) == "nsys"


def test_configurations_are_tuned_by_another_variant_of_the_config(config: dict[str, Any], repository: Path) -> None:
    tuned, reused = {"name": "tuned", "tuning": "fresh"}, {"name": "reused", "tuning": "tuned/b8"}
    assert list(plan(config, repository, GPU_BOX, variants=[{"name": "default"}, tuned, reused]).variants)
    for wrong in ("tunde", "reused"):
        with pytest.raises(UserError, match=naming("tuning:", "reused", wrong)):
            plan(config, repository, GPU_BOX, variants=[{"name": "default"}, tuned, {**reused, "tuning": wrong}])


def foreign(repository: Path, folder: Path, names: Sequence[str], **keys: Any) -> studies.Study:
    """A study of files that other people made."""
    for name in names:
        path = folder / f"{name}.onnx"
        path.write_bytes((repository / "tests/data/faults/onnx" / path.name).read_bytes())
    given = {"study": "s", "precisions": ["fp32"], "backends": ["ort_cpu"], "variants": [{"name": "default"}]}
    given |= {"models": [*names], "profilers": [], "target": [], "baseline": "fp32/ort_cpu/default"}
    return studies.plan({**given, **keys}, folder, LAPTOP)


def test_sizes_that_only_a_shape_gives_are_those_of_all_that_is_made(repository: Path, tmp_path: Path) -> None:
    study = foreign(repository, tmp_path, ["two_symbols", "dimparam"], shapes=["b1", "b1_sequence8", "b2_sequence9"])
    assert [shape.label for shape in study.shapes["two_symbols"]] == ["b1_sequence8", "b2_sequence9"]
    assert str(study.sizes_from("two_symbols")) == "b1_sequence8"
    assert study.sizes_from("dimparam") is None


def test_sizes_that_nothing_gives_are_asked_for_while_planning(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=naming("no size to sequence", "sizes: {sequence: 128}")):
        foreign(repository, tmp_path, ["two_symbols"], shapes=["b1"])


def test_a_graph_that_is_quantized_already_is_refused_without_the_others(repository: Path, tmp_path: Path) -> None:
    study = foreign(repository, tmp_path, ["quantized_already", "dimparam"], shapes=["b1"])
    outcomes = {planned.case.model: (planned.outcome, planned.reason) for planned in study.planned}
    assert outcomes["dimparam"] == ("run", "")
    assert outcomes["quantized_already"][0] == "refused"
    assert "no fp32 baseline" in outcomes["quantized_already"][1]
    assert study.onnx() == [("dimparam", "fp32")]


def _fails(case: Case, machine: Machine) -> str | None:
    raise ZeroDivisionError


def test_a_plug_in_that_fails_when_it_is_asked_refuses_its_cases_and_no_others(
    config: dict[str, Any], repository: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing = replace(registry.backends()["torch_eager"], refuses=_fails)
    watching = replace(registry.profilers()["kineto"], refuses=_fails)
    every, tools = registry.backends(), registry.profilers()
    monkeypatch.setattr(registry, "backends", lambda: {**every, "torch_eager": failing})
    monkeypatch.setattr(registry, "profilers", lambda: {**tools, "kineto": watching})
    planned = studies.plan(config, repository / "models", Machine(gpu=None, label="box", packages=PACKAGES))
    reasons = {one.reason for one in planned.planned if one.case.backend == "torch_eager"}
    assert any("torch_eager" in reason and "ZeroDivisionError" in reason for reason in reasons)
    assert {case.backend for case in planned.cases()} == {"ort_cpu"}
    assert "ZeroDivisionError" in planned.refused_profilers()["kineto"]
    caplog.clear()


@pytest.mark.parametrize("change", ["sizes", "refusal", "nothing"])
def test_the_fingerprint_of_a_study_follows_what_its_list_of_cases_follows(
    config: dict[str, Any], repository: Path, tmp_path: Path, change: str
) -> None:
    shutil.copytree(repository / "models", tmp_path / "models")
    keys = {**config, "models": ["minilm"]}
    before = studies.fingerprint(
        studies.plan(keys, tmp_path / "models", Machine(gpu=None, label="box", packages=PACKAGES))
    )
    path = tmp_path / "models/minilm.yaml"
    if change == "sizes":
        path.write_text(path.read_text().replace("sizes: {s: 128}", "sizes: {s: 64}"))
    packages = {} if change == "refusal" else PACKAGES
    after = studies.fingerprint(
        studies.plan(keys, tmp_path / "models", Machine(gpu=None, label="box", packages=packages))
    )
    assert (before == after) == (change == "nothing")


def test_a_report_of_refusals_alone_leaves_the_one_of_measurements_beside_it(
    config: dict[str, Any], repository: Path, tmp_path: Path
) -> None:
    keys = {"backends": ["ort_cuda"], "models": ["minilm"], "baseline": "fp32/ort_cuda/default"}
    refused = plan(config, repository, LAPTOP, **keys).planned
    for runs, text in (("run", "measured"), ("refused", "refusals")):
        (tmp_path / "REPORT.txt").write_text(text)
        (tmp_path / "cases.csv").write_text(f"model,outcome\nminilm,{runs}\n")
        planning.keep_report(tmp_path, plan(config, repository, LAPTOP).planned)
        assert (tmp_path / planning.EARLIER).exists() == (runs == "refused"), "only a report of refusals replaces one"
        planning.keep_report(tmp_path, refused)
        assert (tmp_path / planning.EARLIER).read_text() == "measured"
    assert mentions(planning.where_reports_are(tmp_path), planning.EARLIER)


def test_a_study_that_the_machine_refuses_as_a_whole_says_why(config: dict[str, Any], repository: Path) -> None:
    keys = {"backends": ["ort_cuda"], "models": ["minilm"], "baseline": "fp32/ort_cuda/default"}
    refused = plan(config, repository, LAPTOP, **keys)
    assert mentions(planning.all_refused(refused.planned), str(len(refused.planned)), "no GPU")
    assert planning.all_refused(plan(config, repository, LAPTOP).planned) is None


def test_a_format_that_another_study_of_the_folder_makes_by_other_options_is_refused(
    config: dict[str, Any], repository: Path, tmp_path: Path
) -> None:
    def check(study: str, precision: Any, **keys: Any) -> None:
        mine = plan(config, repository, LAPTOP, precisions=["fp32", precision], **keys)
        planning.check_formats(study, mine.models, mine.precisions, tmp_path / "reports")

    path = tmp_path / "reports" / "theirs" / "config.json"
    theirs = plan(config, repository, LAPTOP, precisions=["fp32", {"name": "int8", "samples": 8}])
    write_document(path, "config", theirs.config)
    check("theirs", {"name": "int8", "samples": 16})  # the study itself, edited
    check("mine", {"name": "int8", "samples": 8})
    check("mine", {"name": "int8", "samples": 16}, models=["detector"])
    with pytest.raises(UserError) as refused:
        check("mine", {"name": "int8", "samples": 16})
    assert mentions(str(refused.value), "int8", "vit_tiny", "samples: 16", "samples: 8", "theirs")
