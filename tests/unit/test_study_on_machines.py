"""A config that names machines gives a study for each, out of what its probe stored: no GPU is needed to plan it."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import naming

from inferprof import arguments, targets
from inferprof import study as studies
from inferprof.errors import UserError
from inferprof.files import write_json
from inferprof.machine import hardware
from inferprof.machine.hardware import Gpu, Machine

H100: dict[str, Any] = {
    "gpus": [{"name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0", "memory_mib": 81559, "used": True}],
    "driver": {"version": "580.159.04"},
    "performance_counters": True,
    "packages": {"onnxruntime-gpu": "1.31.1", "tensorrt": "10.13.3.9"},
    "tools": {name: {"value": None, "reason": f"{name} is not on PATH"} for name in ("nsys", "ncu", "trtexec")},
    "cpu": {"model": "Xeon", "threads": 16},
}
B200 = {**H100, "gpus": [{**H100["gpus"][0], "name": "NVIDIA B200", "compute_capability": "10.0"}]}
CONFIG: dict[str, Any] = {
    "study": "two",
    "machines": [{"label": "hopper", "gres": "gpu:h100:1"}, {"label": "blackwell", "gres": "gpu:b200:1"}],
    "models": ["vit_tiny"],
    "precisions": ["fp16", "nvfp4"],
    "backends": ["tensorrt"],
    "shapes": ["b1"],
}


def planned(repository: Path, results: Path, probes: dict[str, Any], **keys: Any) -> list[studies.Study]:
    for label, content in probes.items():
        (results / label).mkdir(parents=True)
        (results / label / "environment.json").write_text(json.dumps(content), encoding="utf-8")
    return studies.from_config({**CONFIG, **keys}, repository / "models", results)


def test_what_is_refused_depends_on_what_each_machine_said_of_itself(repository: Path, tmp_path: Path) -> None:
    hopper, blackwell = planned(repository, tmp_path / "results", {"hopper": H100, "blackwell": B200})
    assert [str(case) for case in hopper.cases()] == ["vit_tiny/fp16/tensorrt/default/b1"]
    assert [case.precision for case in blackwell.cases()] == ["fp16", "nvfp4"]
    assert "9.0" in next(p.reason for p in hopper.planned if p.case.precision == "nvfp4")
    assert targets.of_all(targets.engines, [hopper, blackwell]) == [
        "results/hopper/engine/vit_tiny/fp16/tensorrt/default/b1.engine",
        "results/blackwell/engine/vit_tiny/fp16/tensorrt/default/b1.engine",
        "results/blackwell/engine/vit_tiny/nvfp4/tensorrt/default/b1.engine",
    ]


def test_files_that_no_machine_measures_are_asked_for_once(repository: Path, tmp_path: Path) -> None:
    both = planned(repository, tmp_path / "results", {"hopper": H100, "blackwell": B200})
    assert targets.of_all(targets.onnx, both) == [
        f"results/onnx/vit_tiny/{precision}.onnx" for precision in ("fp16", "nvfp4")
    ]


def test_each_of_several_machines_has_a_report_of_its_own(repository: Path, tmp_path: Path) -> None:
    both = planned(repository, tmp_path / "results", {"hopper": H100, "blackwell": B200})
    assert [study.folder for study in both] == ["two/hopper", "two/blackwell"]
    (alone,) = planned(repository, tmp_path / "one", {"hopper": H100}, machines=[{"label": "hopper"}])
    assert alone.folder == "two"


def test_a_machine_that_was_not_probed_has_no_cases_yet(repository: Path, tmp_path: Path) -> None:
    hopper, blackwell = planned(repository, tmp_path / "results", {"hopper": H100})
    assert (hopper.probed, blackwell.probed) == (True, False)
    assert not blackwell.cases()
    assert targets.of_all(targets.probe, [hopper, blackwell]) == [
        "results/hopper/environment.json",
        "results/blackwell/environment.json",
    ]


@pytest.mark.parametrize("content", [{}, {**H100, "gpus": [{"used": True}]}, {**H100, "cpu": None}, []])
def test_a_probe_that_is_none_is_refused_in_one_line(repository: Path, tmp_path: Path, content: Any) -> None:
    with pytest.raises(UserError, match=naming("environment.json", "not", "inferprof")):
        planned(repository, tmp_path / "results", {"hopper": content})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"machine": "box"}, "machine: box and machines: hopper, blackwell; give one of the two keys"),
        ({"machines": [{"label": "a"}, {"label": "a", "cpus": 4}]}, "two are labelled a"),
        ({"machines": [{"label": "onnx"}]}, "'onnx' does not match"),
        ({"machines": [{"label": "aot-sm120"}]}, "'aot-sm120' does not match"),
        ({"machines": [{"label": "a", "gres": "gpu:h100:0"}]}, "'gpu:h100:0' does not match"),
        ({"machines": [{"label": "a", "gres": "gpu:1"}]}, "'gpu:1' does not match"),
        ({"machines": [{"label": "a", "feature": "x"}]}, "'feature' was unexpected"),
    ],
)
def test_machines_that_mean_nothing_are_refused_in_one_line(
    repository: Path, tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as refused:
        planned(repository, tmp_path / "results", {}, **keys)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_a_node_that_is_not_the_machine_that_was_probed_measures_nothing(tmp_path: Path) -> None:
    probed = tmp_path / "hopper" / "environment.json"
    write_json(probed, H100)
    here = Machine(Gpu("NVIDIA H100 80GB HBM3", (9, 0), 80 << 30, "GPU-7", "580.159.04"), H100["packages"])
    hardware.check_probed(probed, here)
    newer = dataclasses.replace(here, packages={**here.packages, "tensorrt": "11.0"}, label="hopper")
    with pytest.raises(UserError, match=r"h100-80gb-hbm3-sm90-\w+, .*hopper was h100-80gb-hbm3-sm90"):
        hardware.check_probed(probed, newer)


def test_a_verb_with_a_results_folder_plans_by_the_probes_in_it(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(repository, tmp_path / "elsewhere", {"blackwell": B200})
    monkeypatch.chdir(tmp_path)
    config = json.dumps({**CONFIG, "machines": [{"label": "blackwell"}]})
    args = argparse.Namespace(config=config, models=repository / "models", machine="blackwell")
    assert arguments.planned_study(args, Path("elsewhere")).machine.slug == "blackwell"
    with pytest.raises(UserError, match=naming("blackwell", "not probed")):
        arguments.planned_study(args)
