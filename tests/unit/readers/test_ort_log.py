"""The log of ONNX Runtime, of each era: who got which node, the copies between, and why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.unit.facts import facts

from inferprof.errors import UserError
from inferprof.readers import ort_log
from inferprof.readers.kinds import ort

LOG = """\
\x1b[0;93m[W:onnxruntime:, a] CUDA kernel not found in registries for Op type: Hardmax node name: /m/Hardmax\x1b[m
[I:onnxruntime:, b] CUDA kernel not supported. Fallback to CPU execution provider for Op type: LSTM node name: rnn
[I:onnxruntime:, c] ORT optimization- Force fallback to CPU execution for node: Shape_0 because the CPU execution \
path is deemed faster than overhead involved with execution on other EPs capable of executing this node
[I:onnxruntime:, d] Session successfully initialized.
"""


def test_the_log_says_why_a_node_was_left_to_the_cpu() -> None:
    reasons = ort_log.reasons(LOG)
    assert list(reasons) == ["/m/Hardmax", "rnn", "Shape_0"]
    assert all(reason in LOG for reason in reasons.values())


PREFIX = (
    "2026-01-02 03:04:05.678 [{level}:onnxruntime:{session}, session_state.cc:1122 VerifyEachNodeIsAssignedToAnEp] "
)
SINCE_1_14 = [
    ("I", "Add MemcpyToHost before x for CUDAExecutionProvider"),
    ("I", "Add MemcpyFromHost after y for CUDAExecutionProvider"),
    (
        "W",
        "2 Memcpy nodes are added to the graph main_graph for CUDAExecutionProvider. It might have negative impact",
    ),
    ("V", "Node placements"),
    ("V", " Node(s) placed on [CUDAExecutionProvider]. Number of nodes: 5"),
    ("V", "  Conv (/a/Conv)"),
    ("V", "  Conv (/b/Conv)"),
    ("V", "  MatMul (/m (1))"),
    ("V", "  MemcpyToHost (Memcpy)"),
    ("V", "  MemcpyFromHost (Memcpy)"),
    ("V", " Node(s) placed on [CPUExecutionProvider]. Number of nodes: 1"),
    ("V", "  Hardmax ()"),
    ("W", "Some nodes were not assigned to the preferred execution providers"),
]


def logged(lines: list[tuple[str, str]], session: str = "") -> str:
    """Lines as ONNX Runtime writes them."""
    return "".join(f"{PREFIX.format(level=level, session=session)}{text}\n" for level, text in lines)


def test_placements_since_1_14_are_read_with_their_copies() -> None:
    (session,) = ort_log.sessions(logged(SINCE_1_14))
    assert session.nodes == {"CUDAExecutionProvider": 5, "CPUExecutionProvider": 1}
    assert session.types["CUDAExecutionProvider"] == Counter({"Conv": 2, "Memcpy": 2, "MatMul": 1})
    assert session.types["CPUExecutionProvider"] == Counter({"Hardmax": 1})
    assert session.copies == 2
    assert len(session.warnings) == 2


def test_placements_in_one_list_per_provider_are_read() -> None:
    text = logged(
        [
            ("V", "Node placements"),
            ("V", " Provider: [CPUExecutionProvider]: [Gather (g), Conv (c 1), ]"),
            ("V", " Provider: [CUDAExecutionProvider]: [MemcpyFromHost (Memcpy), MatMul (m), ]"),
        ]
    )
    (session,) = ort_log.sessions(text)
    assert session.nodes == {"CPUExecutionProvider": 2, "CUDAExecutionProvider": 2}
    assert session.types["CUDAExecutionProvider"] == Counter({"Memcpy": 1, "MatMul": 1})


def test_placements_of_a_line_per_node_are_read() -> None:
    text = logged(
        [("V", "Node placements"), *(("V", f" Node [Conv (c{i})] has been placed on [A].") for i in range(3))]
    )
    (session,) = ort_log.sessions(text)
    assert (session.nodes, session.types["A"]) == ({"A": 3}, Counter({"Conv": 3}))


def test_each_session_has_its_own_placement() -> None:
    second = [("V", "Node placements"), ("V", " All nodes placed on [CPUExecutionProvider]. Number of nodes: 7")]
    first, other = ort_log.sessions(logged(SINCE_1_14) + logged(second, "two"))
    assert (first.nodes["CUDAExecutionProvider"], first.copies) == (5, 2)
    assert (other.nodes, other.copies) == ({"CPUExecutionProvider": 7}, 0)


def test_a_log_without_prefixes_as_people_paste_it_is_read() -> None:
    text = (
        "Node placements\n Node(s) placed on [A]. Number of nodes: 1\n   A_123_1\n"
        " Node(s) placed on [B]. Number of nodes: 1\n   Cast (c)\n"
    )
    (session,) = ort_log.sessions(text)
    assert (session.nodes, dict(session.types["B"])) == ({"A": 1, "B": 1}, {"Cast": 1})


def test_the_answer_names_nodes_on_the_cpu_in_one_line_per_session(tmp_path: Path) -> None:
    path = tmp_path / "verbose.log"
    path.write_text(logged(SINCE_1_14))
    capture = ort.read_log(path)
    assert facts(capture.notes[0]) == [
        "CUDAExecutionProvider",
        "3",
        "CPUExecutionProvider",
        "1",
        "Hardmax",
        "copies",
        "2",
    ]
    (answer,) = capture.answers
    assert answer.findings[0].evidence == {"nodes": 1.0, "copies": 2.0}


def test_a_log_that_tells_no_placement_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "info.log"
    path.write_text(logged([("I", "Session successfully initialized.")]))
    with pytest.raises(UserError, match="log_severity_level"):
        ort.read_log(path)


def test_copies_of_a_log_without_placements_are_told(tmp_path: Path) -> None:
    path = tmp_path / "ort.log"
    path.write_text("[I:onnxruntime:, memcpy.cc:1 Add] Add MemcpyToHost before x for DmlExecutionProvider\n" * 3)
    capture = ort.read_log(path)
    assert any("3" in note for note in capture.notes)
    assert any("log_severity_level" in lack.command for lack in capture.lacks)


def test_dots_in_place_of_nodes_and_names_with_dashes_are_told_apart() -> None:
    (session,) = ort_log.sessions(
        "[V:onnxruntime:, a] Node placements\n"
        "[V:onnxruntime:, a]  Node(s) placed on [CPUExecutionProvider]. Number of nodes: 9\n......\n"
        "[V:onnxruntime:, a]  Node(s) placed on [XExecutionProvider]. Number of nodes: 2\n"
        "[V:onnxruntime:, a]   Kernel_main-graph_1 (X_1)\n[V:onnxruntime:, a]   MemcpyFromHost (Memcpy)\n"
    )
    assert session.types == {"XExecutionProvider": {"Kernel_main-graph_1": 1, "Memcpy": 1}}
