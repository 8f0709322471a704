"""Two GPUs: planted delays and overlap are found by nsys and by Kineto, and ranks that die or hang end in time.

What was measured goes to $OUT/two_gpus.jsonl, where that folder is given.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.gpu import planted_ranks
from tests.gpu.planted_ranks import DELAYS_US, FIRST_US, HELD_US, ITERATIONS, LATE, REPEATS
from tests.unit.facts import mentions
from tests.unit.ranks.test_runs_on_ranks import FAULTS, run_faulty
from tests.unit.test_processes import alive

from inferprof.machine import hardware
from inferprof.profilers import nsys
from inferprof.readers import kineto_ranks, nsys_sqlite
from inferprof.tables.trace import collectives, iterations
from inferprof.tables.trace.collectives import ALL, Paired
from inferprof.tables.trace.kernel_class import classify
from inferprof.tables.trace.timeline import KERNEL, Timeline

pytestmark = pytest.mark.gpu
PROGRAM = Path(planted_ranks.__file__)
TOOLS = ("nsys", "kineto")
DELAYED = ("eager", "graphed")
WITHIN_NS, WITHIN = 5_000, 0.05
TRANSFER_WITHIN = 0.03
LIMIT_S = 5.0
Read = Callable[[str], Timeline]
Verdict = Callable[..., None]


@pytest.fixture(autouse=True, scope="module")
def two_gpus() -> None:
    if (count := hardware.count_gpus()) < 2:
        pytest.skip(f"needs 2 GPUs: {count} here")


@pytest.fixture
def verdict(request: pytest.FixtureRequest) -> Verdict:
    """Writes down what a test is about to judge."""

    def write(**numbers: Any) -> None:
        if folder := os.environ.get("OUT"):
            with Path(folder, "two_gpus.jsonl").open("a") as file:
                file.write(json.dumps({"test": request.node.name, **numbers}, default=float) + "\n")

    return write


@pytest.fixture(scope="module")
def timeline_of(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """The planted program as a tool saw it, run once."""
    made: dict[str, Timeline] = {}

    def read(tool: str) -> Timeline:
        if tool not in made:
            folder = tmp_path_factory.mktemp(tool)
            made[tool] = (_by_nsys if tool == "nsys" else _by_kineto)(folder)
        return made[tool]

    return read


def _by_nsys(folder: Path) -> Timeline:
    if shutil.which("nsys") is None:
        pytest.skip("nsys is not on PATH")
    nsys.capture([sys.executable, str(PROGRAM), str(folder)], folder / "ranks.sqlite", nsys.Options(ranged=False))
    return nsys_sqlite.read_timeline(folder / "ranks.sqlite")


def _by_kineto(folder: Path) -> Timeline:
    subprocess.run([sys.executable, str(PROGRAM), str(folder), "kineto"], check=True, timeout=90)
    ranks = kineto_ranks.joined(sorted(folder.glob("rank*.json")))
    assert ranks is not None
    return ranks.timeline


def paired(timeline: Timeline, name: str) -> tuple[Timeline, Paired]:
    """The timeline with the ranges of this name as iterations, and the collectives in them."""
    own = iterations.of_case(timeline, name)
    pairs = collectives.paired(own, collectives.communication(own))
    assert isinstance(pairs, Paired), pairs
    return own, pairs


def by_delay(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Medians by DELAYS_US of what was measured of each collective but the first of an iteration."""
    planted = values.reshape(ITERATIONS, 1 + REPEATS * len(DELAYS_US))[:, 1:]
    medians: np.ndarray[Any, Any] = np.median(planted.reshape(-1, len(DELAYS_US)), axis=0)
    return medians


def allowed(expected_ns: float) -> float:
    return max(WITHIN_NS, WITHIN * expected_ns)


@pytest.mark.parametrize("mode", DELAYED)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_planted_delay_is_found_as_waiting_and_leaves_the_transfer_as_it_is(
    tool: str, mode: str, timeline_of: Read, verdict: Verdict
) -> None:
    _, pairs = paired(timeline_of(tool), mode)
    waiting, late = (by_delay(pairs.waiting[:, rank]) for rank in (1 - LATE, LATE))
    transfer = by_delay(pairs.transfer.mean(axis=1))
    spread = by_delay(np.ptp(pairs.transfer, axis=1))
    verdict(delays_us=DELAYS_US, waiting_ns=list(waiting), late_ns=list(late), transfer_ns=list(transfer))
    verdict(spread_ns=list(spread), transfer_off=list(transfer / transfer[0] - 1), clock_ns=list(pairs.clock))
    for delay, own in zip(DELAYS_US, waiting, strict=True):
        assert abs(own - 1e3 * delay) <= allowed(1e3 * delay), (delay, own)
    assert np.abs(transfer / transfer[0] - 1).max() <= TRANSFER_WITHIN


def _waiting_and_transfer(timeline: Timeline, mode: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    _, pairs = paired(timeline, mode)
    return pairs.waiting[:, 1 - LATE], pairs.transfer.mean(axis=1)


@pytest.mark.parametrize("mode", DELAYED)
def test_nsys_and_kineto_agree(mode: str, timeline_of: Read, verdict: Verdict) -> None:
    waiting, transfer = (
        [by_delay(each) for each in values]
        for values in zip(*(_waiting_and_transfer(timeline_of(tool), mode) for tool in TOOLS), strict=True)
    )
    verdict(waiting_apart_ns=list(waiting[0] - waiting[1]), transfer_apart=list(transfer[0] / transfer[1] - 1))
    for first, second in zip(*waiting, strict=True):
        assert abs(first - second) <= allowed(first)
    assert np.abs(transfer[0] / transfer[1] - 1).max() <= WITHIN


@pytest.mark.parametrize(("mode", "cause"), [("eager", "compute"), ("held", "idle"), ("copied", "copy")])
@pytest.mark.parametrize("tool", TOOLS)
def test_which_rank_is_late_and_by_what(
    tool: str, mode: str, cause: str, timeline_of: Read, verdict: Verdict
) -> None:
    own, pairs = paired(timeline_of(tool), mode)
    rows = collectives.rows(own)
    totals = rows[rows["name"].eq("AllReduce")].pivot_table(index="device", columns="metric", values="value")
    causes = {name: float(str(totals.loc[1 - LATE, f"waiting_{name}"])) for name in ("compute", "copy", "idle")}
    verdict(mode=mode, causes=causes, last=totals["last_count"].to_dict(), pairs=len(pairs.operation))
    assert totals["last_count"].idxmax() == LATE
    assert max(causes, key=lambda name: causes[name]) == cause
    if mode == "held":
        waits = np.median(pairs.waiting.reshape(ITERATIONS, -1, 2)[:, 1:, 1 - LATE])
        assert waits >= 0.9e3 * HELD_US


@pytest.mark.parametrize("tool", TOOLS)
def test_planted_overlap_is_hidden(tool: str, timeline_of: Read, verdict: Verdict) -> None:
    """All of an all-reduce beside longer products, as much of a long one as its product takes, nothing in turn."""
    talks = {mode: overlap(timeline_of(tool), mode) for mode in ("overlapped", "partly", "eager")}
    verdict(**talks)
    assert all(own["hidden"] >= 0.9 * own["duration"] for own in talks["overlapped"].values())
    assert all(own["hidden"] == 0 for own in talks["eager"].values())
    for own in talks["partly"].values():
        assert abs(own["hidden"] / (own["products"] + 1e3 * ITERATIONS * FIRST_US) - 1) < 0.1
        assert own["exposed"] == pytest.approx(own["duration"] - own["hidden"])


def overlap(timeline: Timeline, mode: str) -> Mapping[int, Mapping[str, float]]:
    """GPU → ns of communication, what of it is hidden, and what the products take that run beside it."""
    own, _ = paired(timeline, mode)
    rows = collectives.rows(own)
    table = rows[rows["name"].eq(ALL)].pivot_table(index="device", columns="metric", values="value")
    gemms = np.array([classify(name).kernel_class == "gemm" for name in own.names])
    inside = collectives._in_iteration(own, own.ops)
    ops = own.ops[inside & own.ops["kind"].eq(KERNEL).to_numpy()]
    ops = ops[gemms[ops["name"].to_numpy()]]
    products = (ops["end"] - ops["start"]).groupby(ops["device"]).sum()
    return {
        device: {
            "products": products[device],
            **{str(name).removesuffix("_total"): float(str(value)) for name, value in table.loc[device].items()},
        }
        for device in (0, 1)
    }


@pytest.mark.parametrize("fault", FAULTS)
def test_a_rank_that_dies_or_hangs_over_nccl_fails_in_time_and_leaves_no_process(
    tmp_path: Path, fault: str, verdict: Verdict
) -> None:
    began = time.monotonic()
    record = run_faulty(tmp_path, fault, LIMIT_S)
    seconds = time.monotonic() - began
    pids = [int(path.read_text()) for path in tmp_path.glob("pid*")]
    verdict(seconds=seconds, status=record["status"], reason=record["reason"], ranks=len(pids))
    assert record["status"] == "failed" and len(pids) == 2
    assert not any(alive(pid) for pid in pids)
    if "sleep" in fault:
        assert mentions(record["reason"], f"{LIMIT_S:g} s")
    else:
        assert mentions(record["reason"], "rank 1")
