"""Ranks are forked, measured together, and ended together, however one of them ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import facts, naming
from tests.unit.test_processes import alive

from inferprof.errors import CaseFailed, UserError
from inferprof.ranks import board, supervise
from inferprof.ranks.supervise import Limits, Rank
from inferprof.ranks.world import World

LIMITS = Limits(load_s=1.0, silent_s=0.5)
TWO = World("tensor", 2)


def followed(rank: Rank, runs: int = 5) -> list[int]:
    """What rank 0 asks for, as each rank sees it."""
    seen: list[int] = []
    if rank.leads:
        for _ in range(runs):
            rank.board.ask_run()
            rank.board.begun(0)
        rank.board.wait_acted(rank.board.order(board.CAPTURE))
        rank.board.ask_run()
        rank.board.begun(0)
        rank.board.wait_acted(rank.board.order(board.CLOSE))
        return []
    while not seen or seen[-1] != board.CLOSE:
        seen.append(kind := rank.board.next(rank.number))
        if kind == board.RUN:
            rank.board.begun(rank.number)
        else:
            rank.board.acted(rank.number)
    return seen


def test_every_rank_runs_what_rank_0_asks_for_in_its_order() -> None:
    asked = [*[board.RUN] * 5, board.CAPTURE, board.RUN, board.CLOSE]
    assert supervise.run(World("tensor", 3), followed, LIMITS) == [[], asked, asked]


def test_results_come_in_order_of_the_ranks_from_processes_of_their_own() -> None:
    results = supervise.run(World("data", 3), lambda rank: (rank.number, os.getpid()), LIMITS)
    assert [number for number, _ in results] == [0, 1, 2]
    assert len({os.getpid(), *(process for _, process in results)}) == 4


def pids_and(tmp_path: Path, fault: Callable[[], Any]) -> Callable[[Rank], None]:
    """Work whose rank 1 has a fault while rank 0 waits for it."""

    def work(rank: Rank) -> None:
        Path(tmp_path, str(rank.number)).write_text(str(os.getpid()))
        if rank.number == 1:
            fault()
        time.sleep(60)

    return work


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def no_memory() -> None:
    raise CaseFailed("out of memory on the GPU", "load")


def defect() -> None:
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize(
    ("fault", "reason", "stage"),
    [
        (killed, ["1", "SIGKILL"], None),
        (lambda: os._exit(3), ["1", "3"], None),
        (no_memory, ["1", "GPU"], "load"),
        (defect, ["1", "ZeroDivisionError"], None),
    ],
)
def test_a_rank_that_fails_ends_the_case_with_its_reason_and_leaves_no_process(
    tmp_path: Path, fault: Callable[[], Any], reason: list[str], stage: str | None
) -> None:
    began = time.monotonic()
    with pytest.raises(CaseFailed) as error:
        supervise.run(TWO, pids_and(tmp_path, fault), LIMITS)
    assert (facts(str(error.value)), error.value.stage) == (reason, stage)
    assert time.monotonic() - began < supervise.GRACE_S + 5
    assert not any(alive(int(path.read_text())) for path in tmp_path.iterdir())


def test_what_the_user_can_mend_stays_a_user_error() -> None:
    def work(rank: Rank) -> None:
        raise UserError("no such shape")

    with pytest.raises(UserError, match="shape"):
        supervise.run(TWO, work, LIMITS)


def test_a_rank_that_was_killed_explains_one_that_lost_its_connection_to_it(tmp_path: Path) -> None:
    def work(rank: Rank) -> None:
        if rank.leads:
            raise CaseFailed("connection closed by peer")
        time.sleep(0.3)
        killed()

    with pytest.raises(CaseFailed, match=naming("1", "SIGKILL")):
        supervise.run(TWO, work, LIMITS)


def test_a_rank_that_raised_explains_one_that_lost_its_connection_to_it_before_it_said_so() -> None:
    def work(rank: Rank) -> None:
        if rank.number == 0:
            raise CaseFailed("RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:20625")
        time.sleep(0.3)
        raise CaseFailed("planted")

    with pytest.raises(CaseFailed, match=naming("1", "planted")):
        supervise.run(TWO, work, LIMITS)


def test_ranks_that_hang_end_within_the_limit_and_the_one_behind_is_named(tmp_path: Path) -> None:
    def work(rank: Rank) -> None:
        Path(tmp_path, str(rank.number)).write_text(str(os.getpid()))
        for _ in range(3 if rank.leads else 2):
            rank.board.begun(rank.number)
        time.sleep(60)

    began = time.monotonic()
    with pytest.raises(CaseFailed, match=naming("0.5 s", "rank 1", "2", "3")):
        supervise.run(TWO, work, LIMITS)
    assert time.monotonic() - began < LIMITS.silent_s + 5
    assert not any(alive(int(path.read_text())) for path in tmp_path.iterdir())


def test_before_the_second_inference_of_all_ranks_the_limit_is_that_of_loading() -> None:
    with pytest.raises(CaseFailed, match=naming("1 s", "0")):
        supervise.run(TWO, lambda rank: time.sleep(60), LIMITS)


def test_what_rank_0_does_behind_the_last_inference_has_no_limit() -> None:
    def work(rank: Rank) -> None:
        if rank.leads:
            rank.board.leave()
            time.sleep(1.5)

    assert supervise.run(TWO, work, LIMITS) == [None, None]


def test_a_rank_that_hangs_while_it_closes_ends_within_the_limit_too() -> None:
    def work(rank: Rank) -> None:
        for _ in range(supervise.FIRST_RUNS):
            rank.board.begun(rank.number)
        if rank.leads:
            rank.board.leave()
        else:
            time.sleep(60)

    with pytest.raises(CaseFailed, match=naming("0.5 s")):
        supervise.run(TWO, work, LIMITS)
