"""Several hosts of one Slurm job: the first starts the others, and they tell each other how far their ranks are.

The process of the job starts itself once more on each other host with `srun --overlap`, within what the job has. They
talk through srun's pipes, a JSON line at a time: nothing listens on a port but torch.distributed.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NoReturn

from inferprof import processes
from inferprof.errors import CaseFailed, UserError
from inferprof.ranks.board import PAUSE_S, SPIN_S, Board
from inferprof.ranks.world import World

HOST: Final = "INFERPROF_HOST"
"""Environment variable of a process on another host: its number, and the port where the ranks meet."""
LEADER: Final = "SLURM_LAUNCH_NODE_IPADDR"
"""Of the first host: whence srun started this process (srun(1))."""
EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST, TRIES = 10_000, 20
ALIVE_S: Final = 2.0
SILENT_S: Final = 30
SRUN: Final = ("srun", "--overlap", "--nodes=1", "--ntasks=1", "--unbuffered", "--kill-on-bad-exit=1")


class Died(CaseFailed):
    """The process of a rank was killed, or crashed: what explains the failures of those that talked with it."""


@dataclass(frozen=True)
class Hosts:
    """The hosts that a case is spread over, evenly, and which of them this is. `meeting`: torch's init_method."""

    number: int = 0
    count: int = 1
    meeting: str | None = None

    @classmethod
    def of(cls, count: int, environment: Mapping[str, str] = os.environ) -> Hosts:
        """So many of this job; on another host than the first, who that is. Raises UserError without Slurm."""
        if HOST in environment:
            number, port = map(int, environment[HOST].split("/"))
            return cls(number, count, f"tcp://{environment[LEADER]}:{port}")
        if count == 1:
            return cls()
        if shutil.which(SRUN[0]) is None:
            raise UserError(f"--hosts {count}: {SRUN[0]} is not on PATH: several hosts are those of a job of Slurm")
        return cls(0, count, f"tcp://localhost:{_free_port()}")

    def ranks(self, world: World, number: int | None = None) -> range:
        """The ranks on a host, by default on this one. Raises CaseFailed where they can't be spread evenly."""
        each, rest = divmod(world.size, self.count)
        if rest:
            raise CaseFailed(f"parallel: {world}: {world.size} ranks can't be spread evenly over {self.count} hosts")
        first = each * (self.number if number is None else number)
        return range(first, first + each)


def _free_port() -> int:
    """A port that is free now, and that the kernel gives to no outgoing connection (srun makes some): one below its
    range, where that leaves any."""
    above = int(EPHEMERAL.read_text("ascii").split()[0])
    for port in [*random.sample(range(LOWEST, max(above, LOWEST + TRIES)), TRIES), 0]:
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("", port))
            return int(free.getsockname()[1])
    raise CaseFailed("no port of this host is free")


class Other:
    """Another host, as the first one sees it: srun's process, and a pipe that says how its ranks ended."""

    def __init__(self, hosts: Hosts, number: int, world: World, board: Board) -> None:
        assert hosts.meeting is not None
        port = hosts.meeting.rpartition(":")[2]
        self.ranks = hosts.ranks(world, number)
        self._process = subprocess.Popen(
            [*SRUN, f"--relative={number}", sys.executable, "-m", "inferprof", *sys.argv[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, HOST: f"{number}/{port}"},
            preexec_fn=processes.die_with_parent,
        )
        self.pid = self._process.pid
        self.pipe, self._end = os.pipe()
        self._board = board

    @contextlib.contextmanager
    def attended(self) -> Iterator[None]:
        """Tell it meanwhile what rank 0 asks for, and hear how far its ranks are. Starts threads: fork before."""
        assert self._process.stdin and self._process.stdout
        listening = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        listening.start()
        end = tell(self._board.asked, self._process.stdin)
        try:
            yield
        finally:
            end()
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _listen(self, said: IO[bytes]) -> None:
        with said, os.fdopen(self._end, "wb") as end:
            for line in said:
                message = json.loads(line)
                if isinstance(message, list):
                    self._board.hear(self.ranks, message)
                else:
                    end.write(pickle.dumps(_read(message)))


def _read(message: Mapping[str, Any]) -> tuple[Any, Exception | None]:
    """What another host's ranks made, or what the first of them failed of."""
    if "reason" not in message:
        return message["results"], None
    if message["kind"] == UserError.__name__:
        return None, UserError(message["reason"])
    kind = Died if message["kind"] == Died.__name__ else CaseFailed
    return None, kind(message["reason"], message["stage"])


def tell(words: Callable[[], list[int]], to: IO[bytes]) -> Callable[[], None]:
    """Write these words each time they change, and every ALIVE_S seconds or so, in a thread; the returned function
    ends that behind the last change."""
    ended = threading.Event()

    def run() -> None:
        written: list[int] = []
        spin_until = 0.0
        while True:
            last, own, now = ended.is_set(), words(), time.monotonic()
            if own != written or now > spin_until + ALIVE_S:
                to.write(f"{json.dumps(own)}\n".encode())
                to.flush()
                written, spin_until = own, now + SPIN_S
            if last:
                return
            if now < spin_until:
                os.sched_yield()
            else:
                time.sleep(PAUSE_S)

    def quiet() -> None:  # the other end has gone: how it ended is told elsewhere
        try:
            run()
        except (BrokenPipeError, ValueError):
            return

    thread = threading.Thread(target=quiet, daemon=True)
    thread.start()

    def end() -> None:
        ended.set()
        thread.join()

    return end


def taken_stdout() -> IO[bytes]:
    """The way to the first host. What anybody prints from now on goes to stderr, which is the log."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


def serve(board: Board, ranks: range, attend: Callable[[], list[Any]], out: IO[bytes]) -> NoReturn:
    """On another host: hear what rank 0 asks for, tell how far these ranks are, and at the end what they made, or why
    they did not. `attend` waits for them. This process ends with it: the first host writes the record."""
    with out:
        end = tell(lambda: board.done(ranks), out)
        threading.Thread(target=_obey, args=(board,), daemon=True).start()
        message: dict[str, Any]
        try:
            message = {"results": attend()}
        except (CaseFailed, UserError) as error:
            message = {"reason": str(error), "stage": getattr(error, "stage", None), "kind": type(error).__name__}
        end()
        out.write(f"{json.dumps(message)}\n".encode())
    raise SystemExit(0)


def _obey(board: Board) -> None:
    """Where the first host says no more, this process ends, and its ranks with it."""
    for line in sys.stdin.buffer:
        signal.alarm(SILENT_S)
        board.ask_alike(json.loads(line))
    os._exit(1)
