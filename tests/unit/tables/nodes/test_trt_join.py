"""Kernels, the layers of an engine and the nodes of a graph: our capture checked by hand, and made-up traces."""

from __future__ import annotations

import csv
import itertools
import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.conftest import Export
from tests.unit.facts import facts, naming

from inferprof.errors import UserError
from inferprof.readers import nsys_sqlite
from inferprof.readers.trt_json import load, read_layers
from inferprof.tables.nodes import attribution, trt_join
from inferprof.tables.nodes.graph_nodes import GUESS, MAIN, ORDER, PARTLY, TIED, Node, align, of_names, work_of
from inferprof.tables.nodes.trt_engine import Layer
from inferprof.tables.nodes.trt_kernels import attributed, tidy
from inferprof.tables.trace.timeline import KERNEL, Timeline, assemble

REGION = "{ForeignNode[b.0.n1.b...(Unnamed Layer* 229) [ElementWise]]}"
GEMM = "sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize64x128x32_stage5_warpsize2x2x1_tensor16x8x16"


@pytest.fixture(scope="module")
def vit2(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    """TensorRT 8.5 on a ViT of two blocks, ten inferences."""
    path = tmp_path_factory.mktemp("nsys") / "vit2.sqlite"
    path.write_bytes(lzma.decompress((repository / "tests/data/nsys/h100_tensorrt_vit2.sqlite.xz").read_bytes()))
    return nsys_sqlite.read_timeline(path)


@pytest.fixture(scope="module")
def vit2_layers(repository: Path) -> tuple[Layer, ...]:
    path = repository / "tests/data/trt_layers/h100_tensorrt_vit2.graph.json"
    return read_layers(path, load(path))


def chain(*names: str) -> Iterator[Node]:
    """Nodes that each wait for the one before; a name may say its type: `qkv:MatMul`."""
    for before, name in itertools.pairwise(("start", *names)):
        label, _, op_type = name.partition(":")
        yield Node(label, op_type or "Add", (before.partition(":")[0],), (label,))


def vit_of_two_blocks(separate: bool = False) -> tuple[Node, ...]:
    """What such a ViT computes at opset 13, where a normalisation is many nodes; q, k and v are one product or three.

    The capture's own graph is not known: these have its order of work, and names of our own.
    """
    attention = ("norm1:Sqrt", "qkv:MatMul", "scores:MatMul", "softmax:Softmax", "context:MatMul", "out:MatMul")
    block = (*attention, "norm2:Sqrt", "fc1:MatMul", "gelu:Erf", "fc2:MatMul")
    inner = tuple(f"b.{number}/{name}" for number in (0, 1) for name in block)
    nodes = tuple(chain("/p/Conv:Conv", *inner, "pool:ReduceMean", "head:Gemm"))
    return tuple(itertools.chain.from_iterable(map(_apart, nodes))) if separate else nodes


def _apart(node: Node) -> tuple[Node, ...]:
    """q, k and v of one product; the scores wait for q and k, what they weigh for v."""
    block = node.name.partition("/")[0]
    if node.name.endswith("/qkv"):
        return tuple(Node(f"{block}/{part}", "MatMul", node.inputs, (f"{block}/{part}",)) for part in "qkv")
    needs = {"scores": ("q", "k"), "context": ("softmax", "v")}.get(node.name.partition("/")[2])
    return (replace(node, inputs=tuple(f"{block}/{need}" for need in needs)) if needs else node,)


# --- our capture, checked by hand ------------------------------------------------------------------------------


def test_every_kernel_belongs_to_a_layer_and_sums_are_those_of_nsys_stats(
    vit2: Timeline, vit2_layers: tuple[Layer, ...], repository: Path
) -> None:
    joined = attributed(tidy(vit2, vit2_layers, (), "trt_nodes"))
    with (repository / "tests/data/nsys/h100_tensorrt_vit2_cuda_gpu_kern_sum.csv").open() as file:
        stats = {row["Name"]: (int(row["Instances"]), int(row["Total Time (ns)"])) for row in csv.DictReader(file)}
    for _, level in joined.groupby("owner_level"):
        summed = level.groupby("kernel")[["instances", "duration_ns"]].sum()
        assert {name: tuple(values) for name, values in zip(summed.index, summed.to_numpy(), strict=True)} == stats
    shares = attribution.shares(joined)
    assert list(shares.loc["layer"]) == [2_451_209, 2_451_209, 0, 1.0, 0.0]
    owners = attribution.by_owner(joined, "layer")
    assert dict(zip(owners["owner"], owners["duration_ns"], strict=True)) == {
        REGION: 1_787_679,
        "/p/Conv": 571_562,
        "Reformatting CopyNode for Input Tensor 0 to /p/Conv": 69_472,
        f"Reformatting CopyNode for Output Tensor 0 to {REGION}": 12_416,
        "[HostToDeviceCopy 0]": 10_080,
    }


def test_without_the_graph_only_the_convolution_is_a_single_node(
    vit2: Timeline, vit2_layers: tuple[Layer, ...]
) -> None:
    joined = attributed(tidy(vit2, vit2_layers, (), "trt_nodes"))
    shares = attribution.shares(joined, at_least=0.8)
    assert list(shares.loc["op"])[:3] == [2_451_209, 571_562, 1_879_647]
    assert attribution.by_owner(joined, "op")["owner"].dropna().to_list() == ["/p/Conv"]


def test_ranges_alone_tell_the_same_layers(vit2: Timeline, vit2_layers: tuple[Layer, ...]) -> None:
    with_layers, without = trt_join.owners(vit2, vit2_layers), trt_join.owners(vit2, ())
    pd.testing.assert_frame_equal(with_layers, without)


def test_kernels_that_were_checked_by_hand(vit2: Timeline, vit2_layers: tuple[Layer, ...], repository: Path) -> None:
    checked = json.loads((repository / "tests/data/trt_layers/h100_tensorrt_vit2.checked.json").read_text())
    assert len(checked) >= 10
    kernels = np.flatnonzero(vit2.ops["kind"].to_numpy() == KERNEL)
    alone = trt_join.owners(vit2, vit2_layers).iloc[kernels]
    with_graph = trt_join.owners(vit2, vit2_layers, vit_of_two_blocks()).iloc[kernels]
    for one in checked:
        place = one["launch"] - 1
        assert alone["layer"].iloc[place] == one["layer"], one["why"]
        assert (alone["node"].iloc[place] if one["node"] else one["node"]) == one["node"], one["why"]
        assert pd.isna(alone["node"].iloc[place]) == (one["node"] is None), one["why"]
        named = with_graph["node"].iloc[place]
        assert (None if pd.isna(named) else named) == one["work"], one["why"]


def test_with_a_graph_of_the_same_order_most_of_the_time_is_single_nodes(
    vit2: Timeline, vit2_layers: tuple[Layer, ...]
) -> None:
    owners = trt_join.owners(vit2, vit2_layers, vit_of_two_blocks())
    joined = attributed(tidy(vit2, vit2_layers, vit_of_two_blocks(), "trt_nodes"))
    # The convolution, the seven kinds of product and the softmax, as `nsys stats` has them.
    marked = 571_562 + 386_951 + 251_685 + 189_026 + 182_278 + 155_649 + 112_069 + 51_904 + 151_778
    assert attribution.shares(joined, at_least=0.8).loc["op", "attributed_ns"] == marked
    assert attribution.shares(joined, at_least=0.8).loc["op", "attributed_share"] == pytest.approx(0.8375, abs=1e-4)
    by_node = attribution.by_owner(joined, "op").set_index("owner")
    # Twice in each of ten inferences would be 20: each block has its own.
    assert by_node.loc["b.1/fc1", "instances"] == 10
    assert set(owners["node_confidence"].dropna()) == {TIED, ORDER}


def test_products_of_one_input_that_run_as_one_kernel_are_no_single_node(
    vit2: Timeline, vit2_layers: tuple[Layer, ...]
) -> None:
    together = trt_join.owners(vit2, vit2_layers, vit_of_two_blocks())
    apart = trt_join.owners(vit2, vit2_layers, vit_of_two_blocks(separate=True))
    qkv = together["node"].isin(["b.0/qkv", "b.1/qkv"])
    assert qkv.sum() == 20
    assert apart.loc[qkv, "node"].isna().all()
    pd.testing.assert_frame_equal(apart[~qkv], together[~qkv])


def test_layers_of_another_engine_are_refused_with_counts_and_examples(vit2: Timeline) -> None:
    with pytest.raises(UserError) as caught:
        trt_join.owners(vit2, (Layer("Conv_0 + Relu_1"), Layer("MaxPool_2")))
    assert facts(str(caught.value))[:16] == [
        "4",
        "4",
        "not",
        "2",
        "/p/Conv",
        "Reformatting",
        "CopyNode",
        "Input",
        "Tensor",
        "0",
        "/p/Conv",
        "Reformatting",
        "CopyNode",
        "Output",
        "Tensor",
        "0",
    ]
    assert " to {Fo" in str(caught.value)
    assert "\n" not in str(caught.value)


# --- layers without ranges -------------------------------------------------------------------------------------


def traced(ranges: list[tuple[int, int, str]], kernels: list[tuple[int, str]], graph: bool = False) -> Timeline:
    """A trace of one thread: ranges, and (time of the launch, kernel), each 10 ns long, or one graph launch."""
    names = list(dict.fromkeys(name for _, name in kernels))
    ops = pd.DataFrame(
        {
            "start": [time + 1 for time, _ in kernels],
            "end": [time + 11 for time, _ in kernels],
            **{"kind": KERNEL, "device": 0, "stream": 7, "bytes": 0},
            "name": [names.index(name) for _, name in kernels],
            "correlation": 1 if graph else range(1, len(kernels) + 1),
        }
    )
    times = [kernels[0][0]] if graph else [time for time, _ in kernels]
    calls = pd.DataFrame({"start": times, "thread": 1, "name": 0, "correlation": range(1, len(times) + 1)})
    calls["end"] = calls["start"] + 1
    held = pd.DataFrame(ranges, columns=["start", "end", "label"]).assign(thread=1)
    return assemble(ops, calls[["start", "end", "thread", "name", "correlation"]], held, names)


MYELIN = (
    Layer("{ForeignNode[a...z]}"),
    Layer("qkv_myl0_1", kind="gemm", nodes=("/qkv/MatMul",), tactic=GEMM),
    Layer("__myl_MaxSubExp_myl0_2", kind="kgen", nodes=("/Softmax",), tactic="__myl_MaxSubExp_0x1f"),
    Layer("out_myl0_3", kind="gemm", nodes=("/out/MatMul", "/Relu"), tactic=GEMM),
)


def columns(owners: pd.DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(None if pd.isna(v) else v for v in row) for row in owners.astype(object).itertuples(index=False)]


def test_layers_inside_of_a_region_are_found_by_their_tactics_in_the_engines_order() -> None:
    launched = [(10, f"{GEMM}_execute_kernel_trt"), (20, "__myl_MaxSubExp_0x1f"), (30, f"{GEMM}_execute_kernel_trt")]
    launched.append((40, "void splitKreduce_kernel<1>()"))
    ranges = [(0, 100, trt_join.ENQUEUE), (5, 90, "{ForeignNode[a...z]}"), (6, 80, "myelinGraphExecute")]
    assert columns(trt_join.owners(traced(ranges, launched), MYELIN)) == [
        ("qkv_myl0_1", 0.95, "/qkv/MatMul", 0.95),
        ("__myl_MaxSubExp_myl0_2", 0.95, "/Softmax", 0.95),
        ("out_myl0_3", 0.95, "/out/MatMul", MAIN),
        ("{ForeignNode[a...z]}", 1.0, None, None),
    ]


def test_a_graph_launch_outside_of_all_ranges_is_told_by_tactics_alone() -> None:
    launched = [(10, GEMM), (20, "__myl_MaxSubExp_0x1f"), (30, GEMM), (40, "mine")]
    owners = columns(trt_join.owners(traced([(0, 100, "iteration")], launched, graph=True), MYELIN))
    assert [row[0] for row in owners] == ["qkv_myl0_1", "__myl_MaxSubExp_myl0_2", "out_myl0_3", None]


def test_launches_of_a_shared_tactic_that_are_not_as_many_as_its_layers_are_the_regions() -> None:
    ranges = [(0, 100, trt_join.ENQUEUE), (5, 90, "{ForeignNode[a...z]}")]
    owners = columns(trt_join.owners(traced(ranges, [(10, GEMM), (20, GEMM), (30, GEMM)]), MYELIN))
    assert owners == [("{ForeignNode[a...z]}", 1.0, None, None)] * 3


def test_a_fused_product_has_the_tactic_of_the_plain_one_and_is_told_apart_by_its_kernel() -> None:
    layers = (Layer("plain", tactic=GEMM), Layer("fused", kind="fusion", tactic=f"{GEMM}_by_fusion_tactic"))
    launched = [(10, f"{GEMM}_fused20_kernel"), (20, f"{GEMM}_execute_kernel_trt")]
    owners = columns(trt_join.owners(traced([(0, 100, "iteration")], launched, graph=True), layers))
    assert [row[0] for row in owners] == ["fused", "plain"]
    alone = columns(trt_join.owners(traced([(0, 100, "iteration")], launched[:1], graph=True), layers[:1]))
    assert alone[0][0] == "plain"


def test_a_kernel_outside_of_every_inference_is_nobodys() -> None:
    ranges = [(0, 15, trt_join.ENQUEUE), (5, 14, "/p/Conv")]
    trace = traced(ranges, [(10, "conv"), (20, "conv")])
    owners = trt_join.owners(trace, ())
    assert columns(owners) == [("/p/Conv", 1.0, "/p/Conv", 1.0), (None, None, None, None)]
    shares = attribution.shares(attributed(tidy(trace, (), (), "trt_nodes")))
    assert shares["unattributed_ns"].to_dict() == {"layer": 10, "op": 10}


def test_a_range_of_ones_own_around_the_inference_changes_nothing() -> None:
    known = frozenset({"/p/Conv"})
    assert trt_join.layer_of_path(f"iteration > stage:execute > {trt_join.ENQUEUE} > /p/Conv", known) == "/p/Conv"
    assert trt_join.layer_of_path(f"{trt_join.ENQUEUE} > {{ForeignNode[a]}} > /p/Conv > x", known) == "/p/Conv"
    assert trt_join.layer_of_path(f"{trt_join.ENQUEUE} > other > deeper", known) == "other"
    assert trt_join.layer_of_path("iteration > stage:execute", known) is None


# --- nodes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "nodes"),
    [
        (Layer("Conv_0 + PWN(Relu_1)"), ["Conv_0", "Relu_1"]),
        (Layer("/cv2/Conv + /cv2/Relu || /cv3/Conv"), ["/cv2/Conv", "/cv2/Relu", "/cv3/Conv"]),
        (Layer("features.0.0.weight + QuantizeLinear_8 + Conv_12 + PWN(Clip_16)"), [
            *("QuantizeLinear_8", "Conv_12", "Clip_16"),
        ]),
        (Layer("PWN(PWN(/Sub), PWN(/Div))"), ["/Sub", "/Div"]),
        (Layer("/fc/Gemm + (Unnamed Layer* 58) [ElementWise]"), ["/fc/Gemm"]),
        (Layer("PWN(/Constant_11_output_0 + ONNXTRT_Broadcast_779, PWN(/Mul))"), ["/Mul"]),
        (Layer("Reformatting CopyNode for Input Tensor 0 to Conv_0 + Relu_1"), []),
        (Layer("any", nodes=("/a/Conv", "mine")), ["/a/Conv", "mine"]),
        (Layer("conv1"), ["conv1"]),
        (Layer("conv2 + relu2"), ["conv2", "relu2"]),
        (Layer("[HostToDeviceCopy 0]"), []),
        (Layer(REGION), []),
    ],
)  # fmt: skip
def test_the_nodes_of_a_layer_are_in_its_metadata_or_its_name(layer: Layer, nodes: list[str]) -> None:
    assert [node.name for node in trt_join.nodes_of(layer, {})] == nodes


def test_with_a_graph_only_its_nodes_count() -> None:
    graph = {"first": Node("first", "Conv")}
    assert trt_join.nodes_of(Layer("first + Relu_1"), graph) == (graph["first"],)


@pytest.mark.parametrize(
    ("name", "op_type"),
    [
        ("/layer1/conv1/Conv", "Conv"),
        ("MatMul_12", "MatMul"),
        ("Conv_0_1", "Conv"),
        ("b.0.n1.b", ""),
        ("/fc/x", ""),
    ],
)
def test_names_of_nodes_tell_their_types(name: str, op_type: str) -> None:
    assert of_names([name]) == (Node(name, op_type),)


@pytest.mark.parametrize(
    ("op_type", "work"),
    [
        ("", "other"),
        ("Gemm", "gemm"),
        ("GlobalAveragePool", "reduction"),
        ("ReduceMean", "reduction"),
        ("Erf", "elementwise"),
    ],
)
def test_types_of_nodes_tell_the_kind_of_their_kernel(op_type: str, work: str) -> None:
    assert work_of(op_type) == work


def test_the_one_kernel_of_a_fused_layer_is_the_node_that_does_its_kind_of_work() -> None:
    nodes = tuple(chain("c:Conv", "r:Relu"))
    assert align(("sm80_xmma_fprop_implicit_gemm",), nodes) == (("c", MAIN),)


def test_one_kernel_that_does_the_work_of_several_nodes_is_none_of_them() -> None:
    attention = tuple(chain("scores:MatMul", "soft:Softmax", "context:MatMul"))
    assert align(("fmha_v2_flash_attention_fp16",), attention) == ((None, None),)


def test_nodes_that_could_change_places_are_a_guess() -> None:
    parallel = (Node("q", "MatMul", ("x",), ("q",)), Node("k", "MatMul", ("x",), ("k",)))
    joined = (*parallel, Node("scores", "MatMul", ("q", "k"), ("s",)))
    assert align((GEMM,) * 3, joined) == (("q", GUESS), ("k", GUESS), ("scores", ORDER))


def test_kernels_fewer_than_nodes_are_none_of_them() -> None:
    nodes = tuple(chain("qkv:MatMul", "soft:Softmax", "out:MatMul", "fc:MatMul"))
    kernels = (GEMM, "__myl_MaxSubExp_0x1", GEMM)
    assert align(kernels, nodes) == ((None, None), ("soft", MAIN), (None, None))


def test_kinds_in_another_order_leave_little_confidence_in_what_matches() -> None:
    nodes = tuple(chain("soft:Softmax", "qkv:MatMul", "out:MatMul"))
    assert align((GEMM, "__myl_MaxSubExp_0x1", GEMM), nodes) == ((None, None), ("soft", PARTLY), ("qkv", PARTLY))


def test_attention_in_one_kernel_is_no_single_node_and_does_not_disturb_the_others() -> None:
    block = ("qkv:MatMul", "scores:MatMul", "soft:Softmax", "context:MatMul", "out:MatMul")
    nodes = tuple(chain(*(f"{number}.{name}" for number in "12" for name in block)))
    kernels = (GEMM, "fmha_v2_flash_attention_fp16_64_64", GEMM) * 2
    assert align(kernels, nodes) == (
        *(("1.qkv", ORDER), (None, None), ("1.out", ORDER)),
        *(("2.qkv", ORDER), (None, None), ("2.out", ORDER)),
    )


def test_a_kind_of_which_there_are_more_kernels_than_nodes_does_not_disturb_the_others() -> None:
    nodes = tuple(chain("norm:LayerNormalization", "qkv:MatMul", "soft:Softmax", "out:MatMul"))
    norm = "__myl_bb0_12_MulAddSqrDivMulMulAddResResTra"
    assert align((norm, norm, GEMM, "__myl_MaxSubExp_0x1", GEMM), nodes) == (
        *((None, None), (None, None)),
        *(("qkv", ORDER), ("soft", MAIN), ("out", ORDER)),
    )


def test_nodes_of_which_only_names_are_known_are_a_guess_where_there_are_several() -> None:
    nodes = of_names(["/a/MatMul", "/b/MatMul"])
    assert align((GEMM, GEMM), nodes) == (("/a/MatMul", GUESS), ("/b/MatMul", GUESS))


# --- CUDA graphs -----------------------------------------------------------------------------------------------


def test_kernels_of_a_cuda_graph_are_the_layers_in_whose_ranges_their_nodes_were_made(
    export: Callable[..., Export],
) -> None:
    made = export()
    made.range(trt_join.ENQUEUE, 1000, 2000)
    made.range("/a/Conv", 1100, 1200)
    made.range("/b/MatMul", 1300, 1400)
    made.node(1, 1150)
    made.node(2, 1350)
    made.range("iteration", 3000, 9000)
    for start in (3100, 5100):
        launch = made.call("cudaGraphLaunch_v10000", start, start + 100)
        made.kernel("conv", start + 200, start + 230, launch, node=1)
        made.kernel(GEMM, start + 300, start + 350, launch, node=2)
        made.kernel("mine", start + 400, start + 410, launch, node=3)
    frame = tidy(nsys_sqlite.read_timeline(made.done()), (), (), "trt_nodes")
    owned = attribution.by_owner(attributed(frame), "layer")
    assert list(zip(owned["owner"].fillna(""), owned["duration_ns"], owned["instances"], strict=True)) == [
        ("/b/MatMul", 100, 2),
        ("/a/Conv", 60, 2),
        ("", 20, 2),
    ]


# --- other traces ----------------------------------------------------------------------------------------------


def test_engines_of_onnx_runtimes_provider_have_layers_too(captured: Callable[[str], Path]) -> None:
    """Five layers of two engines; those that are made of one node are that node's, whatever it is called."""
    joined = attributed(tidy(nsys_sqlite.read_timeline(captured("h100_ort_tensorrt_ep")), (), (), "trt_nodes"))
    assert attribution.shares(joined)["attributed_ns"].to_dict() == {"layer": 2_315_543, "op": 512_844}
    nodes = attribution.by_owner(joined, "op").set_index("owner")["duration_ns"]
    assert nodes.drop(np.nan).to_dict() == {"gap": 302_759, "conv1": 145_987, "head": 64_098}


def test_a_trace_without_tensorrt_is_refused() -> None:
    trace = traced([(0, 100, "iteration")], [(10, "gemm")])
    with pytest.raises(UserError, match=naming("no", "ExecutionContext::enqueue", "NVTX")):
        tidy(trace, (), (), "trt_nodes")
