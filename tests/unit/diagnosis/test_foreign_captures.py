"""What is said of captures that other people made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.conftest import Export
from tests.unit.diagnosis.asking import ask
from tests.unit.diagnosis.conftest import CASE, MACHINE, NO_RECORDS

from inferprof.diagnosis import frames, run, verdict
from inferprof.findings import NEEDS, Frames
from inferprof.profilers import nsys
from inferprof.tables import schema

Made = Callable[..., Frames]
OF_KERNELS = ("hot_kernel", "conversions", "unfused_attention", "kernel_loops")


def frames_of(rows: pd.DataFrame) -> Frames:
    return frames.of_tables(MACHINE, CASE, frames.peers_of(NO_RECORDS), schema.of_case(rows, MACHINE, CASE))


@pytest.fixture
def made(repository: Path) -> Made:
    """Name of an export of tests/data/nsys/made, and the range that is an iteration → its frames."""

    def of(name: str, iteration: str | None = "infer") -> Frames:
        return frames_of(nsys.read(repository / f"tests/data/nsys/made/{name}.sqlite", iteration))

    return of


def test_a_graph_traced_as_a_whole_is_named_with_its_share_and_how_to_trace_its_nodes(made: Made) -> None:
    case = made("whole_graph")
    (finding,) = ask("hot_kernel", case).findings
    assert (finding.subject, finding.share) == ("CUDA graph 9", 0.92)
    assert finding.evidence == {"graph_ns": 920_000.0, "launches": 1.0}
    assert "--cuda-graph-trace=node" in finding.advice
    answers = run.answers(case)
    assert not [one for one in answers if NEEDS["gpu"] in one.reason]
    assert [group.resource for group in verdict.of_case(case, answers).groups] == ["kernels"]
    assert ask("launch_bound", case).evidence["launch_ns"] == 30_000


@pytest.mark.parametrize("check", OF_KERNELS[1:])
def test_nothing_is_said_of_kernels_that_a_graph_hides(check: str, made: Made) -> None:
    assert ask(check, made("whole_graph")).verdict == "not assessed"


def test_a_graph_is_found_without_iterations_too(made: Made) -> None:
    (finding,) = ask("hot_kernel", made("whole_graph", None)).findings
    assert (finding.share, finding.evidence["graph_ns"]) == (None, 3 * 920_000)


def test_kernels_beside_a_shorter_graph_have_shares_of_both(export: Callable[..., Export]) -> None:
    built = export()
    built.range("iteration", 0, 2000)
    built.kernel("k", 100, 700, built.call("cudaLaunchKernel_v7000", 10, 20))
    built.graph(800, 1100, built.call("cudaGraphLaunch_v10000", 30, 40), graph=3)
    (finding,) = ask("hot_kernel", frames_of(nsys.read(built.done()))).findings
    assert finding.evidence["kernel_share"] == 600 / 900
    assert finding.share == 600 / 2000


def test_another_process_has_its_share_and_none_of_the_kernels(made: Made) -> None:
    case = made("two_processes")
    (finding,) = ask("gaps", case).findings
    assert (finding.subject, finding.share) == ("other_process", 0.7)
    assert verdict.times_of(case)["kernels"] == 100_000
    assert ask("hot_kernel", case).findings[0].share == 0.1


def test_an_iteration_that_returns_early_is_as_long_as_its_kernels_take(made: Made) -> None:
    case = made("asynchronous")
    assert case.total is not None
    assert case.total.ns == 560_000
    assert verdict.times_of(case)["kernels"] == 500_000
