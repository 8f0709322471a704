"""What a kernel must read is what its largest node reads, and only where all of its nodes are known."""

from __future__ import annotations

import pandas as pd
from tests.unit.made_records import node as made_node

from inferprof.documents.graph import Node
from inferprof.tables import schema
from inferprof.tables.nodes import product_kernels
from inferprof.tables.trace.timeline import PATH_SEPARATOR


def node(name: str, read: int | None, weights: int = 0) -> Node:
    return made_node(name=name, read=read, weights=weights)


def ties(*launched: tuple[str, str | None]) -> pd.DataFrame:
    """Kernels and the nodes that launched them, as profilers/ort_nodes tells."""
    rows = [
        {
            **{"level": "kernel", "metric": "duration_total", "name": kernel, "value": 1000.0, "instances": 1},
            "owner": None if owner is None else PATH_SEPARATOR.join(("CUDAExecutionProvider", "MatMul", owner)),
        }
        for kernel, owner in launched
    ]
    return schema.conform(pd.DataFrame(rows), "ort_nodes")


def test_weights_are_read_too_and_the_largest_node_counts() -> None:
    found = product_kernels.of_functions(
        ties(("void gemm<float>(float *)", "small"), ("void gemm<float>(float *)", "large")),
        [node("small", 10), node("large", 100, weights=50)],
    )
    assert found == {"gemm": 150.0}


def test_a_fused_node_reads_at_least_what_the_one_does_that_it_is_named_after() -> None:
    assert product_kernels.of_functions(ties(("k", "m/MatMulScaleFusion/")), [node("m", 8)]) == {"k": 8.0}


def test_where_one_launch_has_no_known_node_nothing_is_said_of_its_function() -> None:
    nodes = [node("known", 10), node("uncounted", None)]
    assert product_kernels.of_functions(ties(("k", "known"), ("k", None)), nodes) == {}
    assert product_kernels.of_functions(ties(("k", "known"), ("k", "elsewhere")), nodes) == {}
    assert product_kernels.of_functions(ties(("k", "known"), ("k", "uncounted")), nodes) == {}
