"""A session of rank 0 whose every inference the other ranks run too, and what those do meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager

from inferprof.device import Buffer, Device
from inferprof.devices.ranges import collected
from inferprof.errors import CaseFailed
from inferprof.measure import timing
from inferprof.measure.lane import Lane
from inferprof.plugins import Session
from inferprof.ranks import board
from inferprof.ranks.board import Board
from inferprof.ranks.supervise import Rank
from inferprof.run_request import Profiling


class Led:
    """Implements plugins.Session on rank 0. Its own part of an inference ends with that of the others, since each
    way to divide a case ends in a collective, or with a result that another rank sends."""

    def __init__(self, session: Session, ranks: Board) -> None:
        self.session, self._ranks = session, ranks

    def bind(self, inputs: Mapping[str, Buffer]) -> None:
        """Of this rank: the others have inputs of their own, the same numbers."""
        self.session.bind(inputs)

    def enqueue(self) -> None:
        """Ask the others first, so that their launches go beside this rank's."""
        self._ranks.ask_run()
        self._ranks.begun(0)
        self.session.enqueue()

    def outputs(self) -> dict[str, Buffer]:
        """Rank 0 has the whole output."""
        return self.session.outputs()

    def capture_graph(self) -> bool:
        """All ranks at once: a collective is captured on each."""
        number = self._ranks.order(board.CAPTURE)
        captured = self.session.capture_graph()
        self._ranks.wait_acted(number)
        return captured

    def memory(self) -> dict[str, int]:
        """Of this rank."""
        return self.session.memory()

    def close(self) -> None:
        """As the backend does when it is left."""
        self.session.close()


def own(session: Session) -> Session:
    """The backend's session of this process."""
    return session.session if isinstance(session, Led) else session


@contextlib.contextmanager
def leading(opened: AbstractContextManager[Session], rank: Rank) -> Iterator[Session]:
    """Rank 0's session. The others leave theirs when it is left, all at the same time: they close connections."""
    with opened as session:
        yield Led(session, rank.board)
        rank.board.order(board.CLOSE)
    rank.board.leave()


def follow(session: Session, device: Device, lane: Lane, rank: Rank, profiling: Profiling | None) -> None:
    """What a rank other than 0 does between load and close: what rank 0 asks for."""
    named = profiling.range if profiling else contextlib.nullcontext
    with timing.undisturbed(), contextlib.ExitStack() as window:
        while (kind := rank.board.next(rank.number)) != board.CLOSE:
            if kind == board.RUN:
                rank.board.begun(rank.number)
                with named("iteration"):
                    lane.execute()
                continue
            if kind == board.CAPTURE and not session.capture_graph():
                raise CaseFailed("the runtime cannot capture this model as a CUDA graph")
            if kind == board.COLLECT and profiling:
                window.enter_context(profiling.recorder(rank.number))
                window.enter_context(collected(device))
            if kind == board.END_COLLECT:
                window.close()
            rank.board.acted(rank.number)
        device.synchronize()
        rank.board.acted(rank.number)


@contextlib.contextmanager
def collecting(rank: Rank | None) -> Iterator[None]:
    """The window of a profiler on the ranks other than 0. Nothing without ranks."""
    if rank is None:
        yield
        return
    rank.board.wait_acted(rank.board.order(board.COLLECT))
    yield
    rank.board.wait_acted(rank.board.order(board.END_COLLECT))
