"""What a change of one key of the config or of a model's description runs again: what follows, and no more."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.workflow.conftest import TOY, Workspace

pytestmark = pytest.mark.slow

LISTED = frozenset({"cases", "write_report", "report_in_use"})
"""What follows where cases are listed anew, or the config is another one."""
DIAGNOSED = LISTED | {"diagnose"}
CHOSEN = frozenset({"select", "report_so_far"})
MEASURED = DIAGNOSED | {"benchmark", "report_so_far", "capture_ort_profile", "table_ort_profile"}
"""What follows where there is one more case: a first answer before all are done, too."""
AT_A_SHAPE = MEASURED | {"expect", "cost"}
GRAPH = AT_A_SHAPE | {"audit", "accuracy", "serve"}
POLICY = {"name": "alone", "policy": "none", "slo_ms": 50, "loads": [0.5], "seconds": 0.2, "search": False}
KEYS: Mapping[str, tuple[Any, Collection[str]]] = {
    "study": ("other", LISTED),
    "precisions": (["fp32", "fp16"], GRAPH | {"quantize"}),
    "backends": (["ort_cpu", "ort_cuda"], DIAGNOSED),  # refused: a diagnosis says that it was tried in vain
    "variants": ([{"name": "default"}, {"name": "one", "threads": 1}], MEASURED | {"serve"}),
    "shapes": (["b1", "b2"], AT_A_SHAPE),
    "profilers": ([], DIAGNOSED),
    "repeat": ("contenders", LISTED),
    "captures": ("winners", LISTED | CHOSEN),
    "target": (["12.0"], LISTED),  # no backend of the study builds for another GPU
    "baseline": ("fp32/ort_cuda/default", LISTED),
    "thresholds": ({"throttled": 0.9}, DIAGNOSED),
    "answer": ({"boundary": "call"}, LISTED),
    "serving": ([{**POLICY, "slo_ms": 60}], DIAGNOSED | {"serve"}),
    "best": ({"budget_min": 7}, LISTED),
    "exclude": ([{"model": "toy", "backend": "ort_cuda", "reason": "not wanted"}], LISTED),
}
"""Key of the config → another value, and the rules that run again."""
ELSEWHERE = {
    "machine": "test_another_machine_measures_for_itself_and_converts_nothing",
    "machines": "test_machines.py",
    "models": "test_dropped_model.py",
    "protocol": "test_a_part_of_the_protocol_reruns_what_is_measured_by_it",
}


@pytest.fixture(scope="module")
def studied(make_workspace: Callable[[Path], Workspace], tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace in which a small study has run, of a model whose height is a symbol."""
    workspace = make_workspace(tmp_path_factory.mktemp("keys") / "workspace")
    describe(workspace, sizes={"h": 32}, max_sizes={"b": 64, "h": 64})
    workspace.configure(
        precisions=["fp32"],
        backends=["ort_cpu"],
        shapes=["b1"],
        target=[],
        profilers=["ort_profile"],
        serving=[POLICY],
        repeat="all",
        captures="all",
    )
    done = workspace.run("results/REPORT.txt")
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace


def describe(workspace: Workspace, **keys: Any) -> None:
    """Write the model's description with these keys over those in it."""
    path = workspace.folder / "models" / "toy.yaml"
    description = yaml.safe_load(path.read_text(encoding="utf-8"))
    description["inputs"][0]["dims"] = ["b", 3, "h", 32]
    path.write_text(yaml.safe_dump({**description, **keys}), encoding="utf-8")


def test_each_key_of_the_config_is_changed_here(repository: Path) -> None:
    schema = json.loads((repository / "workflow/inferprof/schemas/config.schema.json").read_text(encoding="utf-8"))
    assert KEYS.keys() | ELSEWHERE.keys() == schema["properties"].keys()


@pytest.mark.parametrize("key", KEYS)
def test_a_changed_key_of_the_config_reruns_what_follows_from_it(studied: Workspace, key: str) -> None:
    value, expected = KEYS[key]
    jobs = rerun(studied, "config.yaml", lambda: studied.configure(**{key: value}))
    assert jobs == set(expected)


@pytest.mark.parametrize(
    ("part", "value", "expected"),
    [
        ("budget_s", 0.06, DIAGNOSED | {"benchmark"}),
        ("accuracy_samples", 9, LISTED | {"expect_samples", "accuracy"}),
        ("limit_s", 77, LISTED),
    ],
)
def test_a_part_of_the_protocol_reruns_what_is_measured_by_it(
    studied: Workspace, part: str, value: float, expected: Collection[str]
) -> None:
    protocol = {**TOY["protocol"], part: value}
    assert rerun(studied, "config.yaml", lambda: studied.configure(protocol=protocol)) == set(expected)


@pytest.mark.parametrize(
    ("keys", "listed"), [({"sizes": {"h": 48}}, True), ({"max_sizes": {"b": 64, "h": 48}}, False)]
)
def test_changed_sizes_of_a_model_measure_it_anew_and_list_cases_that_are_others(
    studied: Workspace, keys: dict[str, Any], listed: bool
) -> None:
    jobs = rerun(studied, "models/toy.yaml", lambda: describe(studied, **keys))
    assert {"export", "benchmark", "serve", "diagnose", "write_report"} <= jobs
    assert ("cases" in jobs) == listed


def test_each_key_of_a_description_measures_the_model_anew(studied: Workspace) -> None:
    jobs = rerun(studied, "models/toy.yaml", lambda: describe(studied, seed=1))
    assert jobs == GRAPH - {"cases", "report_so_far"} | {"export", "expect_samples"}


@pytest.mark.parametrize(
    "written",
    [
        lambda text: f"# A comment.\n\n{text}",
        lambda text: yaml.safe_dump(yaml.safe_load(text), default_flow_style=True, sort_keys=False),
    ],
)
def test_a_description_that_says_the_same_in_other_words_reruns_nothing(
    studied: Workspace, written: Callable[[str], str]
) -> None:
    path = studied.folder / "models" / "toy.yaml"
    other = written(path.read_text(encoding="utf-8"))
    assert rerun(studied, "models/toy.yaml", lambda: path.write_text(other, encoding="utf-8")) == set()


def test_each_byte_of_a_models_code_counts(studied: Workspace) -> None:
    path = studied.folder / "models" / "toy_module.py"
    other = f"{path.read_text(encoding='utf-8')}# A comment.\n"
    jobs = rerun(studied, "models/toy_module.py", lambda: path.write_text(other, encoding="utf-8"))
    assert {"export", "benchmark", "serve", "diagnose", "write_report"} <= jobs


def test_each_rule_that_reads_a_description_is_rerun_by_what_it_says(repository: Path) -> None:
    """Snakemake takes no notice of the file's time: a rule without the digest would never run again."""
    for path in (repository / "workflow" / "rules").glob("*.smk"):
        rules = re.split(r"^ *(?:rule|checkpoint)\b.*:$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
        reads = [rule for rule in rules if re.search(r"=(?:model_spec|artifact|expected_of|served_artifacts),", rule)]
        assert all("=model_description," in rule for rule in reads), path
    for profile in (repository / "profiles").glob("*/config.yaml"):
        assert "params" in yaml.safe_load(profile.read_text(encoding="utf-8"))["rerun-triggers"]


def test_a_run_after_changed_sizes_reports_the_new_shape_alone(studied: Workspace) -> None:
    describe(studied, sizes={"h": 48})
    done = studied.run("results/REPORT.txt")
    assert done.returncode == 0, done.stdout + done.stderr
    text = (studied.folder / "results" / "REPORT.txt").read_text(encoding="utf-8")
    assert "b1_h48" in text and "b1_h32" not in text
    assert studied.jobs("results/REPORT.txt") == {}


def rerun(workspace: Workspace, file: str, change: Callable[[], object]) -> set[str]:
    """The rules that a change of a file would run again; the file is as before then."""
    path = workspace.folder / file
    before = path.read_text(encoding="utf-8")
    change()
    try:
        return workspace.jobs("results/REPORT.txt").keys() - {"total"}
    finally:
        path.write_text(before, encoding="utf-8")
