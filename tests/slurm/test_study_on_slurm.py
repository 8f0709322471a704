"""One study over two machines of a Slurm cluster: two virtual nodes on this host, which run real jobs."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.slurm.cluster import Cluster, ClusterError, running
from tests.unit.facts import facts, mentions
from tests.unit.ranks.test_runs_on_ranks import FAULTY, FAULTY_YAML
from tests.unit.test_processes import alive
from tests.workflow.conftest import Workspace, environment, refusal, shown_by, toy_workspace

from inferprof.files import sha256

NODES = {
    "n1": "CPUs=2 RealMemory=16000 Feature=one",
    "n2": "CPUs=2 RealMemory=16000 Feature=two Gres=gpu:virtual:1",
}
"""The second has a device file that Slurm takes for a GPU: what a request for one GPU does is seen without one."""
LABELS = {"left": "n1", "right": "n2"}
STUDY: Mapping[str, Any] = {
    "machines": [
        {"label": "left", "constraint": "one"},
        {"label": "right", "constraint": "two", "gres": "gpu:virtual:1"},
    ],
    "precisions": ["fp32", {"name": "int8", "samples": 8, "calibration": "max"}],
    "backends": ["ort_cpu", "torch_eager", "ort_cuda"],
    "shapes": ["b1"],
    "profilers": ["ort_profile"],
    "repeat": "all",
    "captures": "all",
    "target": [],
}
ALL_OF_A_NODE = "cpu=2,mem=16000M,node=1,billing=2"
GRES = {"left": None, "right": "gres:gpu:virtual:1"}
MEASURING = ("rule_probe_", "rule_ceilings_", "rule_benchmark_", "rule_capture_")
LOCAL = ("probes", "cases", "report_in_use", "total")
"""What Snakemake runs itself, and its sum."""
CASES = [f"toy/{case}/default/b1" for case in ("fp32/ort_cpu", "fp32/torch_eager", "int8/ort_cpu")]
SPREAD: Mapping[str, Any] = {
    "machines": [{"label": "both", "nodes": 2}],
    "models": ["llama_tiny"],
    "precisions": ["fp32"],
    "backends": ["torch_eager"],
    "variants": [
        {"name": "default"},
        {"name": "tensor2", "parallel": {"tensor": 2}},
        {"name": "data2", "parallel": {"data": 2}},
    ],
    "shapes": ["b4_s16"],
    "profilers": [],
    "target": [],
}
WHOLE, *DIVIDED = [
    f"results/both/benchmark/llama_tiny/fp32/torch_eager/{variant}/b4_s16/r0.json"
    for variant in ("default", "tensor2", "data2")
]
PROFILED = 2
"""ONNX Runtime's own profile of fp32 and of int8."""


@dataclass(frozen=True)
class OnSlurm:
    """A workspace whose jobs go to the cluster."""

    workspace: Workspace
    cluster: Cluster

    def command(self, *arguments: str) -> list[str]:
        """Snakemake with profiles/slurm. Without accounting only squeue tells how a job ended."""
        profile = str(self.workspace.repository / "profiles" / "slurm")
        words = self.workspace.command("--jobs", "8", "--slurm-status-command", "squeue", *arguments)
        words[words.index("--workflow-profile") + 1] = profile
        cores = words.index("--cores")
        return [*words[:cores], *words[cores + 2 :], "--slurm-init-seconds-before-status-checks", "2"]

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the host that submits: the tools of this Python, and the cluster."""
        ours, theirs = environment(), self.cluster.environment
        python = ours["PATH"].split(":")[0]
        return {**ours, **theirs, "PATH": f"{theirs['PATH'].split(':')[0]}:{python}:{theirs['PATH']}"}

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake to its end."""
        return subprocess.run(
            self.command(*arguments),
            env={**self.variables, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )

    def results(self) -> Path:
        """The results folder."""
        return self.workspace.folder / "results"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster, while these tests run."""
    try:
        with running(tmp_path_factory.mktemp("cluster") / "slurm", NODES) as one:
            yield one
    except ClusterError as error:
        pytest.exit(f"no Slurm cluster: {error}", returncode=2)


@pytest.fixture(scope="module")
def studied(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, repository: Path) -> OnSlurm:
    """The whole study, run by Slurm: first the probes, then the rest."""
    on_slurm = OnSlurm(toy_workspace(tmp_path_factory.mktemp("slurm") / "workspace", repository), cluster)
    on_slurm.workspace.configure(**STUDY)
    for target in ("probes", "results/REPORT.txt"):
        done = on_slurm.run(target)
        assert done.returncode == 0, done.stdout + done.stderr
    return on_slurm


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The results of the same study without Slurm."""
    workspace = toy_workspace(tmp_path_factory.mktemp("local") / "workspace", repository)
    workspace.configure(**STUDY)
    for target in ("probes", "results/REPORT.txt"):
        done = workspace.run(target)
        assert done.returncode == 0, done.stdout + done.stderr
    return workspace.folder / "results"


def test_nothing_is_planned_before_the_machines_are_known(cluster: Cluster, tmp_path: Path, repository: Path) -> None:
    fresh = OnSlurm(toy_workspace(tmp_path / "workspace", repository), cluster)
    fresh.workspace.configure(**STUDY)
    assert mentions(refusal(fresh.run("results/REPORT.txt")), "left, right", "target probes first")


def test_hosts_that_the_config_does_not_name_get_no_job(cluster: Cluster, tmp_path: Path, repository: Path) -> None:
    fresh = OnSlurm(toy_workspace(tmp_path / "workspace", repository), cluster)
    assert mentions(refusal(fresh.run("results/REPORT.txt")), "other hosts", "give machines", "docs/slurm.md")


def test_a_gpu_that_no_node_has_is_one_line_and_no_job(studied: OnSlurm, tmp_path: Path, repository: Path) -> None:
    before = len(studied.cluster.jobs())
    fresh = OnSlurm(toy_workspace(tmp_path / "workspace", repository), studied.cluster)
    fresh.workspace.configure(machines=[{"label": "left"}, {"label": "b200", "gres": "gpu:b200:1"}])
    assert mentions(refusal(fresh.run("probes")), "b200", "gpu:b200:1", "gpu:virtual:1")
    assert len(studied.cluster.jobs()) == before


def test_every_job_of_the_study_ran_in_slurm(studied: OnSlurm) -> None:
    planned = studied.workspace.jobs("--forceall", "probes", "results/REPORT.txt")
    ran = Counter(re.split("^rule_|_wildcards_", job["Comment"])[1] for job in completed(studied))
    assert ran == {rule: count for rule, count in planned.items() if rule not in LOCAL}


def test_each_measurement_had_its_machine_for_itself(studied: OnSlurm) -> None:
    jobs = completed(studied)
    measured = [job for job in jobs if job["Comment"].startswith(MEASURING)]
    assert len(measured) == len(LABELS) * (2 + len(CASES) + PROFILED)
    for job in measured:
        label = next(label for label in LABELS if f"_wildcards_{label}" in job["Comment"])
        got = (job["NodeList"], job["TRES"], job["OverSubscribe"], job.get("TresPerNode"))
        assert got == (LABELS[label], ALL_OF_A_NODE, "NO", GRES[label]), job["Comment"]
        assert [other["Comment"] for other in jobs if other is not job and beside(job, other)] == []
    others = [job for job in jobs if job not in measured]
    asked = {(job["TRES"], job["OverSubscribe"], job.get("TresPerNode")) for job in others}
    assert asked == {("cpu=1,mem=8000M,node=1,billing=1", "OK", None)}


def test_jobs_that_measure_nothing_went_to_any_node(studied: OnSlurm) -> None:
    free = [job["NodeList"] for job in studied.cluster.jobs() if job["Features"] == "(null)"]
    assert set(free) == {"n1", "n2"}


@pytest.mark.parametrize("label", LABELS)
def test_tables_are_those_of_a_local_run_apart_from_times(studied: OnSlurm, local: Path, label: str) -> None:
    found = sorted(path.relative_to(local) for path in local.glob(f"{label}/table/**/*.parquet"))
    assert len(found) == PROFILED
    for name in found:
        ours, theirs = (timeless(folder / name) for folder in (studied.results(), local))
        pd.testing.assert_frame_equal(ours, theirs)


@pytest.mark.parametrize("label", LABELS)
def test_records_are_those_of_a_local_run_apart_from_times(studied: OnSlurm, local: Path, label: str) -> None:
    for case in CASES:
        name = f"{label}/benchmark/{case}/r0.json"
        ours, theirs = (json.loads((folder / name).read_text()) for folder in (studied.results(), local))
        for key in ("case", "machine", "status", "reason", "outputs", "placement", "round"):
            assert ours[key] == theirs[key], (name, key)
        assert ours["boundaries"].keys() == theirs["boundaries"].keys()
        assert ours["environment"]["packages"] == theirs["environment"]["packages"]


def test_graphs_and_cases_are_those_of_a_local_run(studied: OnSlurm, local: Path) -> None:
    for name in ("onnx/toy/fp32.onnx", "onnx/toy/int8.onnx"):
        assert sha256(studied.results() / name) == sha256(local / name)
    for label in LABELS:
        name = f"reports/toy/{label}/cases.csv"
        assert (studied.results() / name).read_text() == (local / name).read_text()


def test_the_report_has_the_machines_side_by_side(studied: OnSlurm) -> None:
    text = (studied.results() / "REPORT.txt").read_text(encoding="utf-8")
    assert facts(text, "machines", "study", "toy")[:5] == ["inferprof", "study", "toy", "2", "machines"]
    assert "right against left" in text and "same recorded conditions" in text
    with (studied.results() / "reports/toy/csv/right_against_left.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [
        "/".join((row["model"], row["precision"], row["backend"], row["variant"], row["shape"])) for row in rows
    ] == CASES
    assert all(float(row["left_ms"]) > 0 and float(row["right_ms"]) > 0 for row in rows)


def test_snakemakes_own_report_has_the_page_of_each_machine(studied: OnSlurm, tmp_path: Path) -> None:
    done = studied.run("results/REPORT.txt", "--report", str(tmp_path / "report.html"))
    assert done.returncode == 0, done.stdout + done.stderr
    shown = shown_by(tmp_path / "report.html")
    pages = {path: one["labels"]["study"] for path, one in shown.items() if path.endswith("REPORT.html")}
    assert pages == {f"results/reports/{name}/REPORT.html": name for name in ("toy", "toy/left", "toy/right")}
    for label in LABELS:
        assert f"results/reports/toy/{label}/plots/latency_end_to_end-toy.svg" in shown
    assert "results/reports/toy/csv/right_against_left.csv" in shown


def test_a_second_run_has_nothing_to_do(studied: OnSlurm) -> None:
    done = studied.run("results/REPORT.txt")
    assert done.returncode == 0 and "Nothing to be done" in done.stdout + done.stderr


def test_a_job_whose_node_dies_runs_again_and_nothing_is_lost(
    studied: OnSlurm, tmp_path: Path, repository: Path
) -> None:
    fresh = OnSlurm(toy_workspace(tmp_path / "workspace", repository), studied.cluster)
    fresh.workspace.configure(**STUDY)
    cluster, results = studied.cluster, studied.results()
    old = {path: path.read_bytes() for path in results.glob("*/benchmark/**/r*.json")}
    studied.workspace.configure(
        shapes=["b1", "b2"], protocol={"budget_s": 4.0, "interval": 1e-9, "accuracy_samples": 8}
    )
    # Only the new shape: the longer protocol is no reason to measure the old one again here.
    wanted = [f"results/{label}/benchmark/{case[:-2]}b2/r0.json" for label in LABELS for case in CASES]
    with subprocess.Popen(
        studied.command(*wanted), env=studied.variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as snakemake:
        killed = wait_for_job(cluster, "rule_benchmark_wildcards_right_", seconds=180)
        cluster.kill_node("n2")
        cluster.wait_for({"n2": "down"})
        assert not (results / path_of(killed["Comment"])).exists()
        assert facts(refusal(fresh.run("probes")), "gres", "machine", "right", "two") == [
            "machine",
            "right",
            "gres",
            "gpu:virtual:1",
            "two",
            "n2",
            "down*",
            "one",
            "machine",
        ]
        cluster.start_node("n2")
        output, _ = snakemake.communicate(timeout=600)
    assert snakemake.returncode == 0, output
    again = next(job for job in cluster.jobs() if job["JobId"] == killed["JobId"])
    assert (again["JobState"], again["Restarts"], again["NodeList"]) == ("COMPLETED", "1", "n2")
    assert all(json.loads((studied.workspace.folder / name).read_text())["status"] == "ok" for name in wanted)
    assert {path: path.read_bytes() for path in old} == old


def test_a_case_is_spread_over_two_nodes_in_one_job(cluster: Cluster, tmp_path: Path, repository: Path) -> None:
    """Two ranks on CPUs, one on each node, that talk through gloo."""
    fresh = OnSlurm(toy_workspace(tmp_path / "workspace", repository), cluster)
    for name in ("llama_tiny.yaml", "llama_blocks.py", "llama_ranks.py"):
        shutil.copy(repository / "models" / name, fresh.workspace.folder / "models")
    fresh.workspace.configure(**SPREAD)
    variables = {"GLOO_SOCKET_IFNAME": "lo"}  # both nodes are this host
    for targets in (["probes"], [WHOLE, *DIVIDED]):
        done = fresh.run(*targets, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
    jobs = [job for job in cluster.jobs() if job["Comment"].startswith("rule_benchmark_wildcards_both_")]
    assert sorted(job["NumNodes"] for job in jobs) == ["1", "2", "2"]
    assert {job["NodeList"] for job in jobs if job["NumNodes"] == "2"} == {"n[1-2]"}
    whole = json.loads((fresh.workspace.folder / WHOLE).read_text())
    for path in DIVIDED:
        record = json.loads((fresh.workspace.folder / path).read_text())
        assert (record["status"], record["reason"]) == ("ok", None)
        assert record["checks"]["outputs_match"]["passed"] and record["inputs"] == whole["inputs"]
        assert [rank["rank"] for rank in record["ranks"]] == [0, 1]
        assert record["ranks"][1]["outputs"] == record["outputs"]


def test_a_rank_that_dies_on_another_node_is_a_failed_case_and_leaves_no_process(
    cluster: Cluster, tmp_path: Path, repository: Path
) -> None:
    fresh = OnSlurm(toy_workspace(tmp_path / "workspace", repository), cluster)
    models = fresh.workspace.folder / "models"
    (models / "faulty.py").write_text(FAULTY.replace("FAULT", "os.kill(os.getpid(), 9)"))
    (models / "faulty.yaml").write_text(FAULTY_YAML)
    fresh.workspace.configure(**{**SPREAD, "models": ["faulty"], "shapes": ["b2"]})
    path = "results/both/benchmark/faulty/fp32/torch_eager/data2/b2/r0.json"
    for target in ("probes", path):
        done = fresh.run(target, GLOO_SOCKET_IFNAME="lo")
        assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((fresh.workspace.folder / path).read_text())
    assert (record["status"], facts(record["reason"])) == ("failed", ["1", "SIGKILL"])
    pids = [int(file.read_text()) for file in models.glob("pid*")]
    assert len(pids) == 2 and not any(alive(pid) for pid in pids)


# --- what the tests share --------------------------------------------------------------------------------------


def completed(on_slurm: OnSlurm) -> list[Mapping[str, str]]:
    """The jobs of the study that ended well: the test of a node that dies has its own, of another shape."""
    jobs = on_slurm.cluster.jobs()
    return [job for job in jobs if job["JobState"] == "COMPLETED" and "_b2" not in job["Comment"]]


def beside(job: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two jobs were on a node at the same time."""
    overlap = job["StartTime"] < other["EndTime"] and other["StartTime"] < job["EndTime"]
    return overlap and job["NodeList"] == other["NodeList"]


def flat(case: str) -> str:
    """A case as it stands in the comment of its job."""
    return case.replace("/", "_")


def path_of(comment: str) -> str:
    """The record, below the results folder, of a job `rule_benchmark_wildcards_right_toy_int8_…_b2_0`."""
    names = comment.removeprefix("rule_benchmark_wildcards_")
    label = next(label for label in LABELS if names.startswith(label))
    case = next(case for case in CASES if flat(case[:-3]) in names)
    return f"{label}/benchmark/{case[:-2]}b2/r0.json"


def timeless(path: Path) -> pd.DataFrame:
    """A table without its times, in an order that does not depend on them."""
    frame = pd.read_parquet(path)
    frame.loc[frame["unit"] == "ns", "value"] = 0.0
    return frame.sort_values(list(frame.columns), ignore_index=True)


def wait_for_job(cluster: Cluster, comment: str, seconds: float) -> Mapping[str, str]:
    """The first running job whose comment begins so, once it has run for a few seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for job in cluster.jobs():
            if job["JobState"] == "RUNNING" and job["Comment"].startswith(comment) and job["RunTime"] >= "00:00:04":
                return job
        time.sleep(0.5)
    raise AssertionError(f"no job {comment}… ran within {seconds} s")
