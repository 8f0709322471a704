"""What is said of captures that other people made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.conftest import Export
from tests.unit.diagnosis.asking import ask
from tests.unit.diagnosis.conftest import CASE, MACHINE, NO_RECORDS
from tests.unit.facts import mentions

from inferprof.diagnosis import frames, run, verdict
from inferprof.errors import UserError
from inferprof.findings import NEEDS, Frames
from inferprof.profilers import nsys
from inferprof.readers.kinds import nsys_sqlite
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


def launching(built: Export, *, traced: int, length: int = 300, early: int = 0) -> Path:
    """Ten iterations of a copy and two launches; of their kernels so many in all are in the export."""
    launches = 0
    for number in range(10):
        start = number * 10_000
        built.range("iteration", start, start + 9_000)
        copy = built.call("cudaMemcpyAsync_v3020", start + 50, start + 90)
        built.copy(start + 100 - early, start + 200 - early, copy, kind=1, source=1, target=2, size=64)
        for at in (start + 1_000, start + 5_000):
            call = built.call("cudaLaunchKernel_v7000", at, at + 500)
            launches += 1
            if launches <= traced:
                built.kernel("k", at + 600 - early, at + 600 - early + length, call)
        copy = built.call("cudaMemcpyAsync_v3020", start + 8_000, start + 8_040)
        built.copy(start + 8_050 - early, start + 8_100 - early, copy, kind=2, source=2, target=1, size=64)
    return built.done()


@pytest.mark.parametrize(
    ("traced", "length", "early"),
    [(0, 300, 0), (1, 300, 0), (9, 300, 0), (20, 0, 0), (20, 300, 2_000)],
    ids=["no kernel", "one kernel", "fewer than half", "kernels of no length", "clocks that disagree"],
)
def test_a_capture_that_cannot_tell_why_the_gpu_waits_advises_no_fewer_launches(
    traced: int, length: int, early: int, export: Callable[..., Export]
) -> None:
    path = launching(export(), traced=traced, length=length, early=early)
    case = frames_of(nsys.read(path))
    assert {finding.subject for finding in ask("gaps", case).findings} == {"unknown"}
    assert not ask("launch_bound", case).findings and not ask("host_work", case).findings
    lack = nsys_sqlite.read(path).lacks[0]
    assert mentions(lack.what, "why the GPU was idle", "20") or mentions(lack.what, "begin before the calls")
    run.answers(case)


def test_a_capture_of_all_kernels_ties_its_gaps_to_their_launches(export: Callable[..., Export]) -> None:
    path = launching(export(), traced=20)
    subjects = {finding.subject for finding in ask("gaps", frames_of(nsys.read(path))).findings}
    assert "unknown" not in subjects
    assert len(nsys_sqlite.read(path).lacks) == 1


@pytest.mark.parametrize(("start", "end"), [(100, 2**63 - 1), (-(2**63), 100)])
def test_a_moment_beyond_any_clock_is_one_line(start: int, end: int, export: Callable[..., Export]) -> None:
    built = export()
    built.kernel("k", start, end, built.call("cudaLaunchKernel_v7000", 10, 20))
    with pytest.raises(UserError, match="beyond"):
        nsys.read(built.done())


def sums(waited_ns: float, graphs: int) -> Frames:
    """What `nsys stats` tells: a kernel of 1 ms, launches of graphs, and how long the host synchronises."""
    rows = [("kernel", "fill", 3, 1e6), ("api", "cudaDeviceSynchronize", 1, waited_ns)]
    rows += [("api", "cudaGraphLaunch_v10000", graphs, 2e6)] if graphs else []
    columns = ["level", "name", "instances", "value"]
    return frames_of(schema.conform(pd.DataFrame(rows, columns=columns).assign(metric="duration_total"), "nsys"))


def test_kernels_that_vanish_beside_the_hosts_wait_for_graphs_are_no_cause() -> None:
    (finding,) = ask("hot_kernel", sums(7.8e9, 10)).findings
    assert finding.evidence == {"launches": 10.0, "sync_ns": 7.8e9, "kernel_ns": 1e6}
    assert (finding.gain, finding.acts) == (None, False)
    assert "fill" not in finding.subject + finding.reason
    assert "--cuda-graph-trace=node" in finding.advice


@pytest.mark.parametrize(("waited_ns", "graphs"), [(1.1e6, 10), (7.8e9, 0)])
def test_kernels_that_the_host_waits_for_or_that_no_graph_has_are(waited_ns: float, graphs: int) -> None:
    (finding,) = ask("hot_kernel", sums(waited_ns, graphs)).findings
    assert "fill" in finding.subject
