"""Kernels by operator and by module of torch, in other people's traces and in one of ours."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import facts, naming

from inferprof.case import Case
from inferprof.errors import UserError
from inferprof.machine.hardware import Gpu, Machine
from inferprof.profilers import torch_nodes
from inferprof.readers.kineto_json import read_timeline
from inferprof.tables.nodes import attribution
from inferprof.tables.nodes.torch_kernels import attributed
from inferprof.tables.trace.timeline import KERNEL, MODULE, OPERATOR, PATH_SEPARATOR

EAGER = Case("vit", "fp16", "torch_eager", "default", "b8")


def shares(path: Path) -> dict[str, tuple[int, int]]:
    """Level → (ns of all kernels, ns of those with an owner)."""
    table = attribution.shares(attributed(torch_nodes.read(path)))
    return {str(level): (row["total_ns"], row["attributed_ns"]) for level, row in table.to_dict("index").items()}


@pytest.mark.parametrize(
    ("name", "total", "by_op", "by_module"),
    [
        ("tracelens_mi300_bert_small", 388_344, 388_344, 388_344),
        ("tracelens_b200_eager", 10_862_916, 10_857_828, 10_849_156),
        ("tracelens_torch_compile_triton", 12_549_021, 12_549_021, 0),
        ("hta_2023_simple_add_training", 10_728_000, 10_728_000, 0),
        ("hta_amd_mi250_rocm6.2", 110_881, 110_881, 0),
        ("hta_2024_ns_resolution_displayTimeUnit", 468_153_602, 468_153_602, 0),
    ],
)
def test_kernels_belong_to_operators_and_where_they_were_recorded_to_modules(
    name: str, total: int, by_op: int, by_module: int, shared: Path
) -> None:
    found = shares(shared / f"real/kineto/{name}.json.gz")
    assert found == {"op": (total, by_op), "module": (total, by_module)}


def test_kernels_of_a_graph_are_nobodys(shared: Path) -> None:
    found = shares(shared / "real/kineto/tracelens_sglang_qwen3_decode.json.gz")
    assert found == {"op": (9_765_437, 91_450), "module": (9_765_437, 53_840)}


def test_an_owner_is_the_path_of_operators_or_of_modules(shared: Path) -> None:
    join = attributed(torch_nodes.read(shared / "real/kineto/tracelens_mi300_bert_small.json.gz"))
    longest = attribution.by_owner(join, "op").iloc[0]
    assert (longest["owner"], longest["duration_ns"]) == ("aten::linear > aten::addmm", 174_130)
    modules = attribution.by_owner(join, "module")
    layers = modules[modules["owner"].str.contains("BertEncoder_0 > BertLayer_", regex=False)]
    assert layers["owner"].str.extract(r"(BertLayer_\d)")[0].nunique() == 4


@pytest.mark.parametrize(("name", "told"), [("tracelens_mi300_bert_small", 60), ("tracelens_b200_eager", 766)])
def test_the_operator_is_the_one_that_kineto_ties_the_kernel_to(name: str, told: int, shared: Path) -> None:
    path = shared / f"real/kineto/{name}.json.gz"
    timeline = read_timeline(path, within_torch=True)
    innermost = [
        next((part for part in reversed(timeline.paths[code].split(PATH_SEPARATOR)) if part.startswith(OPERATOR)), "")
        for code, kind in zip(timeline.op_path, timeline.ops["kind"], strict=True)
        if kind == KERNEL
    ]
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    names = {e["args"]["External id"]: e["name"] for e in events if e.get("cat") == "cpu_op"}
    kernels = sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: float(e["ts"]))
    external = [names.get(event["args"].get("External id")) for event in kernels]
    pairs = [(f"{OPERATOR}{name}", op) for name, op in zip(external, innermost, strict=True) if name]
    assert len(pairs) == told
    assert [pair for pair in pairs if pair[0] != pair[1]] == []


def test_the_plain_reader_sees_annotations_alone(shared: Path) -> None:
    timeline = read_timeline(shared / "real/kineto/tracelens_mi300_bert_small.json.gz")
    assert list(timeline.paths) == ["", "ProfilerStep"]


# --- recording -------------------------------------------------------------------------------------------------


def test_the_run_is_told_to_record_with_modules() -> None:
    argv = torch_nodes.command(["inferprof", "run"], Path("c/b8.json.gz"))
    assert argv == ["inferprof", "run", "--kineto", "c/b8.json.gz", "--modules"]


@pytest.mark.slow
def test_modules_are_ranges_with_their_names_and_no_hook_stays(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())

        def forward(self, x: Any) -> Any:
            return self.mlp(x) + 1

    model, out = Block(), tmp_path / "trace.json"
    with torch.inference_mode(), torch_nodes.record(out):
        model(torch.ones(2, 4))
    model(torch.ones(2, 4))
    names = [e["name"] for e in json.loads(out.read_text())["traceEvents"] if e.get("cat") == "user_annotation"]
    assert [name.removeprefix(MODULE) for name in names if name.startswith(MODULE)] == [
        "Block",
        "mlp",
        "mlp.0",
        "mlp.1",
    ]


def test_a_case_needs_modules_and_what_kineto_needs() -> None:
    machine = Machine(Gpu("NVIDIA H100", (9, 0), None, "GPU-0", "580"), packages={"torch": "2.11.0"})
    assert torch_nodes.refuses(EAGER, machine) is None
    compiled = Case("vit", "fp16", "torch_compile", "default", "b8")
    assert facts(torch_nodes.refuses(compiled, machine)) == ["torch_nodes", "torch_compile", "no", "torch"]
    assert facts(torch_nodes.refuses(EAGER, Machine(None))) == ["torch_nodes", "no", "GPU"]


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('[{"cat": "Session"}]')
    with pytest.raises(UserError, match=naming("inferprof table ort_profile")):
        torch_nodes.read(path)
