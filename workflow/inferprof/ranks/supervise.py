"""One process per rank, forked before anything has touched a GPU, and the end of all where one of them ends badly."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import re
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from inferprof import processes
from inferprof.errors import CaseFailed, UserError, reason_of
from inferprof.ranks.board import Board
from inferprof.ranks.hosts import Died, Hosts, Other, serve, taken_stdout
from inferprof.ranks.world import World

POLL_S: Final = 0.1
GRACE_S: Final = 1.0
"""After one rank failed the others have so long to say why, too: one that was killed explains those that waited."""
HOSTS_GRACE_S: Final = 10.0
"""The same where some are on other hosts: Slurm forwards what they say, and their ends."""
LEFT_ALONE: Final = re.compile(
    r"connection (was )?(closed|reset)|remote process exited|ncclRemoteError|broken pipe", re.I
)
"""What Gloo and NCCL say where another rank has ended: that one tells why, also where it tells later."""
FIRST_RUNS: Final = 2
"""Inferences until everything is loaded and compiled, and every rank has found the others."""


@dataclass(frozen=True)
class Limits:
    """How long ranks may make no progress at all, s."""

    load_s: float = 300.0
    """Until FIRST_RUNS."""
    silent_s: float = 60.0
    """From then on, until all sessions are closed; what rank 0 does alone behind that has the limit of its job."""


LIMITS: Final = Limits()
ENDLESS: Final = Limits(math.inf, math.inf)
"""Of a host other than the first, which sees the ranks of all."""
ONE_HOST: Final = Hosts()


@dataclass(frozen=True)
class Rank:
    """Which of the processes this is. `meeting`: where torch.distributed's ranks meet, its init_method."""

    number: int
    world: World
    board: Board
    meeting: str
    hosts: Hosts = field(default_factory=Hosts)

    @property
    def leads(self) -> bool:
        """Whether this one measures."""
        return self.number == 0

    @property
    def gpu(self) -> int:
        """Which of its host's GPUs it has."""
        return self.hosts.ranks(self.world).index(self.number)


@dataclass
class _Child:
    """A forked rank: what it has said so far, and, once it ended, what it failed of (None: of nothing)."""

    rank: int
    process: int
    pipe: int
    host: bool = False
    """It stands for all ranks of another host, whose `result` is a list of theirs."""
    text: bytes = b""
    result: Any = None
    error: Exception | None = None
    ended_at: float | None = None


def run(world: World, work: Callable[[Rank], Any], limits: Limits = LIMITS, hosts: Hosts = ONE_HOST) -> list[Any]:
    """What `work` returns in a process of each rank, rank 0's first.

    Raises what the first that failed raised; CaseFailed for one that was killed or crashed, or where none got on for
    as long as the limits say. No rank is left behind, however this ends. On a host other than the first this process
    ends with it.
    """
    board, own = Board(world.size), hosts.ranks(world)
    children: list[_Child] = []
    out = taken_stdout() if hosts.number else None
    with tempfile.TemporaryDirectory(prefix="inferprof-ranks-") as folder, contextlib.ExitStack() as attended:
        meeting = hosts.meeting or f"file://{folder}/meeting"
        try:
            for number in own:
                children.append(_forked(Rank(number, world, board, meeting, hosts), work))
            if out:
                serve(board, own, lambda: _made(children, board, ENDLESS), out)
            others = [Other(hosts, number, world, board) for number in range(1, hosts.count)]
            children += [_Child(other.ranks.start, other.pid, other.pipe, host=True) for other in others]
            for other in others:
                attended.enter_context(other.attended())
            return _made(children, board, limits)
        finally:
            for child in children:
                if child.ended_at is None:
                    processes.kill_tree(child.process)
                    _reap(child)


def _made(children: list[_Child], board: Board, limits: Limits) -> list[Any]:
    """What the ranks return, once all have ended. Raises what the first one failed of."""
    _attend(children, board, limits)
    return [result for child in children for result in (child.result if child.host else [child.result])]


def _forked(rank: Rank, work: Callable[[Rank], Any]) -> _Child:
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    process = os.fork()
    if process == 0:
        os.close(read)
        _work(rank, work, write, parent)
    os.close(write)
    return _Child(rank.number, process, read)


def _work(rank: Rank, work: Callable[[Rank], Any], out: int, parent: int) -> NoReturn:
    """Do the work of a rank, say through the pipe how it ended, and end."""
    processes.die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    message: tuple[Any, Exception | None]
    try:
        message = work(rank), None
    except (CaseFailed, UserError) as error:
        message = None, error
    except BaseException as error:
        traceback.print_exc()
        message = None, CaseFailed(reason_of(error))
    with contextlib.suppress(OSError):
        sys.stderr.flush()
        with open(out, "wb") as pipe:
            pipe.write(pickle.dumps(message))
    os._exit(0)


def _attend(children: list[_Child], board: Board, limits: Limits) -> None:
    """Until every rank has ended. Raises what the first one failed of."""
    state, changed, first_failed = board.state, time.monotonic(), None
    while waiting := {child.pipe: child for child in children if child.ended_at is None}:
        for pipe in select.select(list(waiting), [], [], POLL_S)[0]:
            _listen(waiting[pipe])
        now = time.monotonic()
        failed = [child for child in children if child.error]
        first_failed = first_failed or (now if failed else None)
        if first_failed and now > first_failed + (HOSTS_GRACE_S if children[-1].host else GRACE_S):
            break
        alone = board.left and all(child.ended_at for child in children[1:])
        if board.state != state or alone:
            state, changed = board.state, now
        elif not failed and now > changed + _limit(board, limits):
            raise CaseFailed(_silent(board.runs, _limit(board, limits)))
    failed = [child for child in children if child.error]
    failed.sort(key=lambda child: (not isinstance(child.error, Died), _left_alone(child), child.ended_at))
    if failed and failed[0].error:
        raise _of_rank(failed[0], failed[0].error)


def _left_alone(child: _Child) -> bool:
    return bool(LEFT_ALONE.search(str(child.error)))


def _limit(board: Board, limits: Limits) -> float:
    return limits.silent_s if min(board.runs) >= FIRST_RUNS else limits.load_s


def _silent(runs: tuple[int, ...], limit_s: float) -> str:
    """Why nothing goes on: the rank that is behind the others, where one is."""
    behind = runs.index(min(runs))
    who = (
        f"rank {behind} began {runs[behind]:,} inferences, others {max(runs):,}"
        if min(runs) < max(runs)
        else f"all ranks began {runs[0]:,} inferences"
    )
    return f"ranks hang: no progress for {limit_s:g} s; {who}"


def _listen(child: _Child) -> None:
    """Take what a rank says; at its end, how it ended."""
    part = os.read(child.pipe, 1 << 20)
    child.text += part
    if part:
        return
    status = _reap(child)
    if child.text:
        child.result, child.error = pickle.loads(child.text)
        return
    ended = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit code {status >> 8}"
    child.error = Died(f"its process ended by {ended}")


def _reap(child: _Child) -> int:
    os.close(child.pipe)
    _, status = os.waitpid(child.process, 0)
    child.ended_at = time.monotonic()
    return status


def _of_rank(child: _Child, error: Exception) -> Exception:
    """The failure of a case says which rank it was; what is about the machine or the user's input stays as it is, and
    what another host says of its ranks."""
    if not isinstance(error, CaseFailed) or (child.host and child.text):
        return error
    failure = type(error)(f"rank {child.rank}: {error}", error.stage)
    failure.notes = error.notes
    return failure
