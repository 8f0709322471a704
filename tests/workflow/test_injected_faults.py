"""Every stage × every fault through the real Snakefile: what fails is a row of the report, what breaks is listed."""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from tests.unit.facts import mentions
from tests.workflow import faulty_plugins
from tests.workflow.conftest import Workspace, environment
from tests.workflow.faulty_plugins import FAULTS, OF_PRECISION, OF_PROFILER, OF_VARIANT, RESULTS

from inferprof import documents

pytestmark = pytest.mark.slow

HEALTHY = "toy/fp32/ort_cpu/default/b1"
BROKEN = tuple(fault for fault in FAULTS if fault not in RESULTS)


def study_of(folder: Path, repository: Path, faults: Iterable[str], limit_s: float) -> Workspace:
    """A workspace with a healthy case beside one for each stage and fault."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    faults = tuple(faults)
    (folder / "models").mkdir(parents=True)
    weights = numpy_helper.from_array(__import__("numpy").eye(4, dtype="float32"), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "toy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 4])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "models" / "toy.onnx")
    of_precision = [f"{stage}_{fault}" for stage in OF_PRECISION for fault in faults]
    of_variant = [f"{stage}_{fault}" for stage in OF_VARIANT for fault in faults]
    of_profiler = [f"{stage}_{fault}" for stage in OF_PROFILER for fault in faults]
    workspace = Workspace(folder, repository)
    workspace.configure(
        study="faults",
        models=["toy"],
        precisions=["fp32", *of_precision],
        backends=["ort_cpu", "faulty"],
        variants=[{"name": "default"}, *({"name": name, "fault": "yes"} for name in of_variant)],
        shapes=["b1"],
        profilers=of_profiler,
        captures="all",  # also where a broken case leaves open which is the fastest
        target=[],
        exclude=[
            {"precision": of_precision, "backend": "faulty", "reason": "one fault a case"},
            {"precision": of_precision, "profiler": of_profiler, "reason": "one fault a case"},
            {"backend": "faulty", "profiler": of_profiler, "reason": "one fault a case"},
        ],
        protocol={"budget_s": 0.02, "accuracy_samples": 2, "limit_s": limit_s},
    )
    return workspace


def run(workspace: Workspace, **more: str) -> subprocess.CompletedProcess[str]:
    """The study's report, with the faulty plug-ins."""
    plugins = {"INFERPROF_PLUGINS": faulty_plugins.__file__}
    command = [*workspace.command("results/REPORT.txt"), "--cores", "2"]
    return subprocess.run(
        command, env={**environment(), **plugins, **more}, capture_output=True, text=True, check=False, timeout=900
    )


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV of the report."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def case_of(row: dict[str, str]) -> str:
    """`toy/fp32/ort_cpu/default/b1`."""
    return "/".join(row[key] for key in ("model", "precision", "backend", "variant", "shape"))


@pytest.fixture(scope="module")
def failed(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The study of all faults that are results, run to its report."""
    workspace = study_of(tmp_path_factory.mktemp("failed") / "w", repository, RESULTS, 600)
    done = run(workspace)
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace


def test_each_stage_that_fails_is_a_row_with_its_reason_and_the_others_are_whole(failed: Workspace) -> None:
    folder = failed.folder / "results" / "reports" / "faults"
    assert not (folder / "REPORT.partial.txt").exists()
    reasons = {case_of(row): row["reason"] for row in rows(folder / "csv" / "failed.csv")}
    stages = {row["file"]: row["reason"] for row in rows(folder / "csv" / "failed_stages.csv")}
    said = {"fail": "injected: fail", "error": "RuntimeError: injected: error", "memory": "out of memory on the host"}
    for fault, words in said.items():
        for stage in OF_VARIANT:
            assert words in reasons[f"toy/fp32/faulty/{stage}_{fault}/b1"], (stage, fault)
        assert words in reasons[f"toy/convert_{fault}/ort_cpu/default/b1"]
        for stage in ("convert", "audit", "accuracy"):
            assert words in stages[f"onnx/toy/{stage}_{fault}.{stage}.json"], (stage, fault)
    for fault in RESULTS:
        assert f"toy/fp32/faulty/close_{fault}/b1" in reasons or fault == "nonsense"  # that stage gives nothing
        captures = {file.split("/")[2] for file in stages if "/capture/" in file}
        assert {f"{stage}_{fault}" for stage in OF_PROFILER} <= captures
    assert "NaN" in reasons["toy/fp32/faulty/measure_nonsense/b1"]


def test_a_case_is_whole_whatever_became_of_the_stages_beside_it(failed: Workspace) -> None:
    folder = failed.folder / "results" / "reports" / "faults"
    measured = {case_of(row) for row in rows(folder / "csv" / "end_to_end.csv") if row["median_ms"]}
    beside = {
        f"toy/{stage}_{fault}/ort_cpu/default/b1" for stage in ("audit", "accuracy", "expect") for fault in RESULTS
    } - {"toy/expect_nonsense/ort_cpu/default/b1"}  # nothing says what its outputs should be
    assert {HEALTHY, *beside} <= measured
    assert {case_of(row) for row in rows(folder / "csv" / "verdicts.csv")} >= {HEALTHY, *beside}


def test_nothing_is_left_to_do_and_a_record_that_is_moved_away_is_measured_again(failed: Workspace) -> None:
    plugins = {"INFERPROF_PLUGINS": faulty_plugins.__file__}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*next(iter(plugins.items())))
        assert failed.jobs("results/REPORT.txt") == {}
        (record,) = failed.folder.glob(f"results/cpu-*/benchmark/{HEALTHY}/r0.json")
        away = record.rename(failed.folder / "away.json")
        jobs = failed.jobs("results/REPORT.txt")
        away.rename(record)
    assert jobs["benchmark"] == 1 and jobs["write_report"] == 1


def logs_of(stage: str, fault: str) -> str:
    """A part of the path of the log of the job that a fault ends."""
    if stage in OF_PRECISION:
        return {
            "convert": f"onnx/toy/convert_{fault}.log",
            "expect": f"onnx/toy/expect_{fault}.b1.expected.log",
        }.get(stage, f"onnx/toy/{stage}_{fault}.{stage}.log")
    if stage in OF_VARIANT:
        return f"/faulty/{stage}_{fault}/b1"
    return f"{'table' if stage == 'table' else 'capture'}/{stage}_{fault}/toy/"


def test_each_job_that_breaks_is_listed_with_the_end_of_its_log_and_the_others_are_whole(
    repository: Path, tmp_path: Path
) -> None:
    ends = {"crash": "SIGSEGV", "kill": "SIGKILL", "disk": "No space left"}
    assert {*ends, "hang"} == {*BROKEN}  # the last is in test_hanging_jobs.py
    each_is_listed_and_the_others_are_whole(study_of(tmp_path / "w", repository, ends, 600), ends)


def each_is_listed_and_the_others_are_whole(workspace: Workspace, ends: Mapping[str, str]) -> None:
    """Run a study whose jobs break; `ends`: fault → what the partial report has of the end of such a job's log."""
    done = run(workspace)
    assert done.returncode == 1, done.stdout + done.stderr
    folder = workspace.folder / "results" / "reports" / "faults"
    assert not (folder / "REPORT.txt").exists() and not (workspace.folder / "results" / "REPORT.txt").exists()
    text = " ".join((folder / "REPORT.partial.txt").read_text(encoding="utf-8").split())
    items = text.replace("- ", "-").split(" -log/")
    for stage in (*OF_PRECISION, *OF_VARIANT, *OF_PROFILER):
        for fault in ends:
            (item,) = [item for item in items if logs_of(stage, fault) in item.split(".log:")[0] + ".log"]
            assert ends[fault] in item.partition(".log:")[2], (stage, fault, item)
    assert HEALTHY in {case_of(row) for row in rows(folder / "csv" / "end_to_end.csv") if row["median_ms"]}
    (path,) = workspace.folder.glob(f"results/cpu-*/benchmark/{HEALTHY}/r0.json")
    record: documents.Record = documents.read(path, "record")
    assert record.status == "ok" and record.boundaries and record.boundaries.end_to_end
    assert re.search(r"/default, [\d.]+ ms", text)  # recommended or in doubt, whichever is fastest
    assert mentions(text, "holds each case back")
