"""The ledger of what ONNX Runtime left to the CPU."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.made_records import document

from inferprof.profilers import ort_profile
from inferprof.tables.nodes import fallback, providers
from inferprof.tables.nodes.ort_facts import Assigned, SessionFacts
from inferprof.tables.nodes.providers import OrtProfile

CPU = providers.CPU
CUDA = "CUDAExecutionProvider"
SAID = "CUDA kernel not found in registries"


def table(*nodes: dict[str, Any]) -> pd.DataFrame:
    """Nodes in the order of execution, 1000 ns each unless said otherwise."""
    usual = {"executions": 1.0, "duration": 1000.0, "share": 0.0, "output_bytes": 256.0, "input_types": "float"}
    nothing = dict.fromkeys(("fallback_reason", "subgraph_nodes", "kernel_idle"), np.nan)
    return pd.DataFrame([{**usual, **nothing, "position": i, **node} for i, node in enumerate(nodes)])


def node(name: str, op_type: str, provider: str = CUDA, **more: Any) -> dict[str, Any]:
    return {"name": name, "op_type": op_type, "provider": provider, **more}


def test_the_planted_fallback_between_two_engines_costs_its_two_copies(repository: Path) -> None:
    frame = ort_profile.read(repository / "tests/data/ort_profile/h100_ort_tensorrt_ep.json.gz")
    nodes = providers.per_run(frame)
    (row,) = fallback.ledger(nodes).to_dict("records")
    assert (row["nodes"], row["op_types"], row["why"]) == ("hardmax", "Hardmax", "not told")
    assert (row["copies"], row["copies_bytes"], row["casts"]) == (2, 512, 0)
    assert (row["nodes_ns"], row["copies_ns"]) == (7600, 21_250)
    assert (row["gain_low"], row["gain_high"]) == (21_250, 28_850)
    assert fallback.subgraphs(nodes).to_numpy().tolist() == [
        ["TensorrtExecutionProvider", 2, 2.0, 1.0, 1.0],
        [CPU, 1, 1.0, 1.0, 1.0],
    ]


def test_the_same_operator_left_five_times_for_one_reason_is_one_row_of_their_sum(repository: Path) -> None:
    """TensorRT 8.5 on an encoder whose LayerNormalization it doesn't know."""
    frame = ort_profile.read(repository / "tests/data/ort_profile/h200_ort_tensorrt_layernorm.json.gz")
    fallbacks = fallback.ledger(providers.per_run(frame))
    assert (len(fallbacks), set(fallbacks["op_types"])) == (5, {"LayerNormalization"})
    (one,) = fallback.alike(fallbacks).to_dict("records")
    assert (one["fallbacks"], one["copies"], one["executions"], one["nodes"].count(", ")) == (5, 10, 5, 4)
    for name in fallback.SUMMED:
        assert one[name] == pytest.approx(fallbacks[name].sum())


def test_fallbacks_of_other_reasons_or_operators_are_rows_of_their_own_the_most_expensive_first() -> None:
    def row(name: str, op_type: str, why: str, ns: float) -> dict[str, Any]:
        numbers = dict.fromkeys(("executions", "copies", "casts", *fallback.SUMMED), ns)
        return {"nodes": name, "op_types": op_type, "providers": CPU, "why": why, **numbers}

    fallbacks = pd.DataFrame(
        [
            row("a", "Hardmax", "operator", 5),
            row("b", "Hardmax", "option", 2),
            row("c", "Det", "operator", 4),
            row("d", "Det", "operator", 3),
        ]
    )
    fallbacks["copies_bytes"] = [1.0, 1.0, 1.0, math.nan]
    rows = fallback.alike(fallbacks)
    assert rows[["nodes", "fallbacks", "gain_high"]].to_numpy().tolist() == [["c, d", 2, 7], ["a", 1, 5], ["b", 1, 2]]
    assert math.isnan(rows["copies_bytes"][0])
    assert fallback.alike(fallbacks.head(0)).empty


def test_sizes_of_tensors_are_left_to_the_cpu_on_purpose(repository: Path) -> None:
    nodes = providers.per_run(ort_profile.read(repository / "tests/data/ort_profile/h100_ort_cuda_vit.json.gz"))
    found = fallback.ledger(nodes)
    assert (found["executions"].sum(), found["copies"].sum(), found["gain_low"].sum()) == (61, 0, 0)
    assert set(found["why"]) == {"on purpose"}


def test_a_session_of_the_cpu_has_no_fallback() -> None:
    assert fallback.ledger(table(node("a", "Add", CPU), node("b", "Mul", CPU))).empty


def test_nodes_without_a_name_go_by_their_type(shared: Path) -> None:
    nodes = providers.per_run(ort_profile.read(shared / "real/ort_profile/ort_2019_mkldnn_fences.json"))
    fallbacks = fallback.ledger(nodes)
    assert fallbacks["executions"].sum() == 11
    assert "" not in ", ".join(fallbacks["nodes"]).split(", ")
    assert fallback.subgraphs(nodes)[["provider", "nodes"]].to_numpy().tolist() == [
        ["MKLDNNExecutionProvider", 21.0],
        [CPU, 11.0],
    ]


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("CUDA kernel not found in registries", "operator"),
        ("CUDA kernel not supported", "attributes"),
        ("the CPU execution path is deemed faster than overhead", "on purpose"),
        (np.nan, "not told"),
    ],
)
def test_why_is_what_onnx_runtime_said(reason: Any, why: str) -> None:
    nodes = table(node("a", "Add"), node("b", "Hardmax", CPU, fallback_reason=reason), node("c", "Add"))
    assert fallback.ledger(nodes)["why"].tolist() == [why]


def test_an_operator_that_runs_on_the_gpu_elsewhere_lacks_a_kernel_for_the_format() -> None:
    nodes = table(node("a", "TopK"), node("b", "TopK", CPU, fallback_reason=SAID), node("c", "Add"))
    assert fallback.ledger(nodes)["why"].tolist() == ["number format"]


def test_casts_that_onnx_runtime_inserted_belong_to_the_fallback_and_others_do_not() -> None:
    nodes = table(
        node("user_cast", "Cast"),
        node("InsertedPrecisionFreeCast_x", "Cast", duration=40.0),
        node("Memcpy", "MemcpyToHost", duration=500.0),
        node("hard", "Hardmax", CPU, duration=70.0),
        node("Memcpy_token_1", "MemcpyFromHost", duration=300.0),
        node("InsertedPrecisionFreeCast_y", "Cast", duration=60.0),
        node("z", "MatMul"),
    )
    (row,) = fallback.ledger(nodes).to_dict("records")
    assert (row["casts"], row["casts_ns"], row["casts_bytes"]) == (2, 100, 512)
    assert (row["gain_low"], row["gain_high"]) == (900, 970)


def test_while_the_gpu_computes_nothing_is_gained() -> None:
    nodes = table(
        node("a", "MatMul"),
        node("Memcpy", "MemcpyToHost", duration=5000.0, kernel_idle=200.0),
        node("hard", "Hardmax", CPU, duration=70.0, kernel_idle=70.0),
        node("Memcpy_1", "MemcpyFromHost", duration=300.0, kernel_idle=300.0),
        node("b", "MatMul"),
    )
    (row,) = fallback.ledger(nodes).to_dict("records")
    assert (row["gain_low"], row["gain_high"]) == (570, 570)


def test_bytes_that_the_profile_does_not_tell_are_missing() -> None:
    copy = node("Memcpy", "MemcpyToHost", output_bytes=np.nan)
    (row,) = fallback.ledger(table(node("a", "Add"), copy, node("b", "If", CPU), node("c", "Add"))).to_dict("records")
    assert np.isnan(row["copies_bytes"])


def test_a_fused_node_counts_as_the_nodes_that_it_stands_for() -> None:
    engine = node("TRTKernel_0", "TRTKernel", "TensorrtExecutionProvider", subgraph_nodes=7.0)
    last = node("TRTKernel_1", "TRTKernel", "TensorrtExecutionProvider", subgraph_nodes=1.0)
    nodes = table(engine, node("m", "MemcpyToHost"), node("h", "Hardmax", CPU), last)
    assert fallback.subgraphs(nodes).to_numpy().tolist() == [
        ["TensorrtExecutionProvider", 2, 8.0, 7.0, 1.0],
        [CPU, 1, 1.0, 1.0, 1.0],
    ]


def test_nodes_that_tensorrt_leaves_to_cuda_are_a_fallback_without_copies() -> None:
    engine = node("TRTKernel_0", "TRTKernel", "TensorrtExecutionProvider")
    left = node("nz", "NonZero", duration=300.0, fallback_reason="trt_op_types_to_exclude")
    nodes = table(engine, left, node("TRTKernel_1", "TRTKernel", "TensorrtExecutionProvider"))
    (row,) = fallback.ledger(nodes).to_dict("records")
    assert (row["providers"], row["why"], row["copies"]) == (CUDA, "option", 0)
    assert (row["gain_low"], row["gain_high"]) == (0, 300)


def test_options_that_leave_nodes_to_others_are_their_reason() -> None:
    tensorrt = "TensorrtExecutionProvider"
    taken = tuple(Assigned(name, "Exp", tensorrt, 0) for name in "abcd")
    options = {tensorrt: {"trt_min_subgraph_size": "4", "trt_op_types_to_exclude": "NonZero,RoiAlign"}}
    ran = [("engine", "TRTKernel", tensorrt), ("e", "Exp", CUDA), ("nz", "NonZero", CUDA), ("o", "Other", CUDA)]
    rows = [
        {"run": 0, "start": i, "duration": 1, "name": name, "op_type": op_type, "provider": provider}
        for i, (name, op_type, provider) in enumerate(ran)
    ]
    frame = pd.DataFrame(rows).assign(process=1, thread=1, bytes=8.0, types="float")
    profile = OrtProfile(frame, pd.Series([9]), SessionFacts(0, taken, options=options))
    nodes = providers.per_run(providers.tidy(profile, "ort_profile"))
    told = dict(zip(nodes["name"], nodes["fallback_reason"].fillna(""), strict=True))
    assert told == {"engine": "", "e": "trt_min_subgraph_size", "nz": "trt_op_types_to_exclude", "o": ""}
    assert nodes.set_index("name")["subgraph_nodes"]["engine"] == 4


LEFT = {
    "dynamic": {
        **{"nodes": 2, "taken": 1, "subgraphs": [1]},
        "left": [{"node": "h", "op_type": "Hardmax", "why": "operator", "words": ""}],
    }
}


@pytest.mark.parametrize(
    ("backend", "partition", "why"),
    [
        ("ort_tensorrt", LEFT, "operator"),
        ("ort_cuda", LEFT, "not told"),
        ("ort_tensorrt", None, "not told"),
    ],
)
def test_what_tensorrts_parser_says_explains_what_its_provider_left_and_no_other(
    backend: str, partition: dict[str, Any] | None, why: str
) -> None:
    fallbacks = pd.DataFrame({"nodes": ["h", "o"], "why": ["not told", "option"]})
    told = document("partition", partition) if partition else None
    assert list(fallback.explained(fallbacks, backend, told)["why"]) == [why, "option"]
