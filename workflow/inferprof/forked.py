"""The thin side of the fork server: which verbs of a study's jobs it serves, and the client that hands one over.

A study's jobs would spend most of their time on starting Python and importing libraries. A server imports them once;
each job is a process that it forks: fresh, of the job's own environment, with no CUDA context before its own. The
Snakefile names the study in the environment of its jobs. Only the standard library is imported here: a client is to
start in some 50 ms.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from inferprof import processes

STUDY: Final = "INFERPROF_STUDY"
"""Environment variable of a study's jobs: `{process id of its Snakemake}-{random text}`."""
RUNTIMES: Final = "INFERPROF_RUNTIMES"
"""Environment variable of a study's jobs: the backends that its cases run in."""
LIMIT: Final = "INFERPROF_JOB_LIMIT_S"
"""Environment variable of a study's jobs: the seconds that one may take (protocol.limit_s)."""
SERVER: Final = "INFERPROF_SERVER"
"""Environment variable of a run that a profiler starts: the name of the server that is to fork it. The profiler's own
variables go with it: what it has CUDA's driver load, the fork loads when it first uses the GPU."""
OWN: Final = frozenset({LIMIT, "SHLVL", "PWD", "OLDPWD", "_", "CUDA_DEVICE_ORDER"})
"""Variables that a job may have of its own: no library reads them when it is imported."""
SERVED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("export", "quantize", "audit", "partition", "cost", "expect", "accuracy"), "prepare"),
    **dict.fromkeys(("capture", "table", "diagnose", "report", "select", "cases", "best"), "read"),
    **dict.fromkeys(("run", "compile"), "run"),
}
"""Verb → the group whose libraries it needs; all others start by themselves."""
RECORDED: Final = "recorded"
"""The last part of the group of runs that record themselves with torch, whatever their runtime is."""
SEPARATOR: Final = "+"
"""Between the runtimes of a group."""
START_S: Final = 10.0
"""How long a server may take until it listens, which it does before it imports anything."""
START: Final = "from inferprof import fork_server; fork_server.main()"
RETRY_S: Final = 0.01
SAID_S: Final = 1.0
"""How long a job waits for its server before its log says so."""
IMPORTING: Final = "import libraries (1 of 1)"
"""As progress has a step."""
imported: tuple[str, ...] = ()
"""In a process that a server forked: the modules that it had imported before."""
ROUNDS_OF_A_SERVER: Final = 4
"""Of a duel: as many as its first look wants. A server takes seconds to start, a round of a duel about two."""
PEER: Final = struct.Struct("3i")
"""What SO_PEERCRED gives: process, user, group."""


def name_study(runtimes: Iterable[str]) -> None:
    """Name the study whose Snakemake this process is, and the backends of its cases: its jobs inherit that."""
    os.environ[STUDY] = f"{os.getpid()}-{secrets.token_hex(16)}"
    os.environ[RUNTIMES] = " ".join(sorted(runtimes))


def group_of(argv: Sequence[str]) -> tuple[str, ...] | None:
    """What the jobs that one server forks have in common; None for a verb that is not served.

    Measurements of a round share one, and no other round: rounds are to differ in all that a fresh start may change.
    Of a duel that confirms, both sides of which have one server, ROUNDS_OF_A_SERVER share it; of those that a search
    only chooses by, all do. So do those of related runtimes, which import much the same: torch_eager and
    torch_compile of a study with both.
    """
    group = SERVED.get(argv[0]) if argv else None
    if group != "run" or len(argv) < 2:
        return (group,) if group else None
    round_ = argv[argv.index("--round") + 1] if "--round" in argv[:-1] else "0"
    if "--quiet-core" in argv:
        round_ = "chosen by"
    elif "--only" in argv:
        round_ = f"duel{(int(round_) - 1) // ROUNDS_OF_A_SERVER}"
    related = {argv[1], *filter(functools.partial(_related, argv[1]), os.environ.get(RUNTIMES, "").split())}
    watched = RECORDED if "--kineto" in argv else "profiled" if "--profiled" in argv else "measured"
    return "run", SEPARATOR.join(sorted(related)), round_, watched


def _related(a: str, b: str) -> bool:
    return a.partition("_")[0] == b.partition("_")[0]


def served(argv: Sequence[str]) -> int | None:
    """The exit code of a verb that a process of the study's server ran; None where this process is to run it."""
    if name := os.environ.pop(SERVER, None):
        return _served_by(name, argv)
    study, group = os.environ.get(STUDY), group_of(argv)
    if not study or LIMIT not in os.environ:
        return None
    processes.die_with_parent()
    if not processes.started(_snakemake(study)):
        return 1  # it was killed before this process could ask to end with it
    code = None
    if group:
        with contextlib.suppress(OSError), _connected(study, group) as connection:
            code = _handed_over(connection, argv)
    return code if processes.started(_snakemake(study)) else 1  # with a study that was killed its jobs end


def start_ahead(jobs: Iterable[Sequence[str]]) -> None:
    """Start the servers that these verbs will ask for, all at once, and return when their libraries are imported.

    One after the other, each would import them while the first job of its own waits.
    """
    study = os.environ.get(STUDY)
    if not study or LIMIT not in os.environ:
        return
    with contextlib.ExitStack() as open_until_all_are_ready:
        connections = []
        for group in sorted({group for argv in jobs if (group := group_of(argv))}):
            with contextlib.suppress(OSError):
                connections.append(open_until_all_are_ready.enter_context(_connected(study, group)))
        for connection in connections:
            connection.shutdown(socket.SHUT_WR)  # no job: the server's fork ends, once there can be one
        for connection in connections:
            connection.recv(1)


def server_for(argv: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """The name of a server of the study, started in an environment and ready, that can fork a verb which a profiler
    starts; None where there is no study, or the verb is not served."""
    study, group = os.environ.get(STUDY), group_of(argv)
    if not study or LIMIT not in os.environ or not group:
        return None
    try:
        with _connected(study, group, environment) as connection:
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
    except OSError:
        return None
    return _name(study, group, environment)


def _served_by(name: str, argv: Sequence[str]) -> int | None:
    """The exit code of a verb that the server of this name ran; None where it does not."""
    processes.die_with_parent()
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(f"\0{name}")
        if same_user(connection):
            return _handed_over(connection, argv)
    return None


def _snakemake(study: str) -> int:
    """The process id of a study's Snakemake."""
    return int(study.partition("-")[0])


def same_user(connection: socket.socket) -> bool:
    """Whether it is this user who is at the other end."""
    _, user, _ = PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    return bool(user == os.getuid())


def _name(study: str, group: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """The name of the server of a group that was started in an environment."""
    inherited = {name: value for name, value in sorted(environment.items()) if name not in OWN}
    same = json.dumps([group, inherited, sys.executable, sys.version, __file__])
    return f"inferprof-{study}-{hashlib.sha256(same.encode()).hexdigest()[:16]}"


def _connected(study: str, group: tuple[str, ...], environment: Mapping[str, str] = os.environ) -> socket.socket:
    """A connection to the server of a group, started where there is none. Raises OSError where none answers."""
    name = _name(study, group, environment)
    deadline = time.monotonic() + START_S
    started = False
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(f"\0{name}")  # in Linux's abstract namespace: no file stays behind
        except ConnectionRefusedError:
            connection.close()
            if time.monotonic() > deadline:
                raise
            if not started:
                _start(name, study, group, environment)
                started = True
            time.sleep(RETRY_S)
        else:
            if same_user(connection):
                return connection
            connection.close()
            raise PermissionError(name)


def _start(name: str, study: str, group: tuple[str, ...], environment: Mapping[str, str]) -> None:
    """Start a server in an environment. Of several with one name all but one end at once."""
    subprocess.Popen(
        [sys.executable, "-c", START, name, str(_snakemake(study)), *group],
        cwd="/",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def _handed_over(connection: socket.socket, argv: Sequence[str]) -> int | None:
    """Hand a verb over and wait for its end; None where the server went away before it began."""
    request = {
        "argv": [sys.argv[0], *argv],
        "path": sys.path,
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
    }
    send(connection, request, (0, 1, 2))
    with _said_while(connection):
        answers = connection.makefile("rb")
        begun = answers.readline()
    if not begun:
        return None
    process = int(begun)
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(process, number))
    code = answers.readline()
    if not code:
        sys.stderr.write("inferprof: the fork server of the study ended, and this job with it\n")
        return 1
    return int(code)


@contextlib.contextmanager
def _said_while(connection: socket.socket) -> Iterator[None]:
    """Say in the job's log that its libraries are being imported, where the server does that first."""
    began = time.monotonic()
    waits = not select.select([connection], [], [], SAID_S)[0]
    if waits:
        sys.stderr.write(f"inferprof: {IMPORTING}, {time.monotonic() - began:.0f} s\n")
        sys.stderr.flush()
    yield
    if waits:
        sys.stderr.write(f"inferprof: libraries imported in {time.monotonic() - began:.0f} s\n")


def send(connection: socket.socket, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Send a request: its length, then JSON; the open files go with the length."""
    content = json.dumps(request).encode()
    socket.send_fds(connection, [struct.pack("!Q", len(content))], descriptors)
    connection.sendall(content)


def receive(connection: socket.socket, files: int) -> tuple[dict[str, Any], list[int]]:
    """What `send` sent. Raises EOFError where the other end left before."""
    head, descriptors, _, _ = socket.recv_fds(connection, 8, files)
    if len(head) < 8:
        raise EOFError
    content = connection.makefile("rb", buffering=0)
    (length,) = struct.unpack("!Q", head)
    text = b""
    while len(text) < length:
        part = content.read(length - len(text))
        if not part:
            raise EOFError
        text += part
    return json.loads(text), descriptors
