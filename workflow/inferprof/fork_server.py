"""The fork server of a study: a process that has imported a group's libraries and forks each job that asks.

It has no CUDA context and runs no job itself, so that nothing of one job is left for the next. It ends with the
study's Snakemake, however that ends, and its jobs with it; where nothing asked for IDLE_S it ends, too, and the next
job starts another.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from inferprof import forked, processes
from inferprof.model import export

IDLE_S: Final = 600.0
"""Longer than what lies between two reports of a study that measures meanwhile."""
PREPARE: Final = ("inferprof.verbs", "onnx", "jsonschema", *export.IMPORTS)
READ: Final = (
    "inferprof.verbs",
    "inferprof.report",
    "inferprof.profilers",
    "pandas",
    "pyarrow.parquet",
    "scipy.stats",
)
RUN: Final = (
    "inferprof.verbs",
    "inferprof.workload",
    "inferprof.model.accuracy",
    "jsonschema",  # a model's YAML is checked by it
    "matplotlib.cbook",  # which holds the photograph that image inputs are cut from
)
MODULES: Final[Mapping[str, Sequence[str]]] = {"prepare": PREPARE, "read": READ, "run": RUN}
"""Group → what its jobs import; those that run a model, what its backend names, too."""
CUDA_NOT_INITIALIZED: Final = 3
"""CUresult CUDA_ERROR_NOT_INITIALIZED."""
NVML_CHECK: Final = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""torch's switch to look for a GPU without CUDA, which could not be used in a fork after that."""


def main() -> None:
    """Serve the group that the command line names: NAME, process id of Snakemake, group."""
    name, snakemake, *group = sys.argv[1:]
    sys.path[:1] = []  # the folder that it was started in
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        study = os.pidfd_open(int(snakemake))
        listener.bind(f"\0{name}")
    except OSError:
        return  # the study has ended, or another one was faster
    listener.listen(128)
    with _ending_with(study):
        _import(group)
    fit = not cuda_is_initialized()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    gc.collect()
    gc.freeze()  # what is there stays: no look for garbage in a job touches it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks: the kernel clears them away
    _serve(listener, study, fit)


@contextlib.contextmanager
def _ending_with(study: int) -> Iterator[None]:
    """End this process with the study also while it imports; its thread is gone when a job is forked."""
    done, stop = os.pipe()

    def wait() -> None:
        if study in select.select([study, done], [], [])[0]:
            os._exit(1)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        os.close(stop)
        thread.join()
        os.close(done)


def _import(group: Sequence[str]) -> None:
    """Import what the jobs of a group need. What can't be imported is left to the jobs, which say why."""
    from inferprof import registry

    own = os.environ.pop(registry.OUTSIDE, None), os.environ.get(NVML_CHECK)
    os.environ[NVML_CHECK] = "1"
    modules = tuple(MODULES[group[0]])
    if group[0] == "run":
        backends = [registry.backends().get(name) for name in group[1].split(forked.SEPARATOR)]
        recorder = ["torch.profiler"] if group[-1] == forked.RECORDED else []
        modules = tuple(dict.fromkeys([*modules, *(name for b in backends if b for name in b.imports), *recorder]))
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    if group[0] == "run":
        with contextlib.suppress(Exception):
            registry.precisions()  # whose tolerances a run's outputs are held to: half a second of imports
    forked.imported = tuple(modules)
    for name, value in zip((registry.OUTSIDE, NVML_CHECK), own, strict=True):
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def cuda_is_initialized() -> bool:
    """Whether this process has asked CUDA's driver anything: a fork of it could not use the GPU."""
    if "libcuda.so" not in Path("/proc/self/maps").read_text(encoding="utf-8"):
        return False
    count = ctypes.c_int()
    return bool(ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(count)) != CUDA_NOT_INITIALIZED)


def _serve(listener: socket.socket, study: int, fit: bool) -> NoReturn:
    """Fork a process for each client, until the study ends or nobody asks any more and no job is at work.

    A server that is not fit turns its clients away: they run their jobs themselves.
    """
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(study, select.POLLIN)
    while (ready := poll.poll(IDLE_S * 1e3)) or _has_jobs():
        if any(descriptor == study for descriptor, _ in ready):
            break
        if not ready:
            continue
        connection, _ = listener.accept()
        server = os.getpid()
        if fit and os.fork() == 0:
            processes.die_with_parent()
            if os.getppid() != server:
                os._exit(1)
            listener.close()
            os.close(study)
            _job(connection)
        connection.close()
    os._exit(0)  # nothing to clear away, and no time to lose: the jobs end with this process


def _has_jobs() -> bool:
    """Whether a process that this one forked runs still: it would end with this one."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _job(connection: socket.socket) -> NoReturn:
    """Become the job that a client asks for: this process watches it, and a fork does it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if not forked.same_user(connection):
        os._exit(1)
    try:
        request, descriptors = forked.receive(connection, 3)
    except EOFError:  # a client that only waited until this server is ready
        os._exit(0)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    # The server's own was opened on a device that can seek, which a pipe or a terminal cannot.
    own = io.BufferedWriter(io.FileIO(1, "w", closefd=False))
    sys.stdout = io.TextIOWrapper(own, encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv[:], sys.path[:] = request["argv"], request["path"]
    from inferprof import commands

    connection.sendall(f"{os.getpid()}\n".encode())
    limit = os.environ.get(forked.LIMIT)  # a run under a profiler has that of the job that watches
    code = processes.watched(float(limit) if limit else None, lambda child: _end_with(connection, child))
    if code is None:
        connection.close()
        _end(commands.main)
    with contextlib.suppress(OSError):
        connection.sendall(f"{code}\n".encode())
    os._exit(0)


def _end(job: Callable[..., int]) -> NoReturn:
    """Do a job and end as an interpreter does, but for unloading the libraries, which takes up to a second."""
    code = 1
    try:
        code = job(watched=True)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _end_with(connection: socket.socket, job: int) -> None:
    """Kill a job as soon as its client is gone: Snakemake killed it, or the machine did."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            connection.recv(1)
        processes.kill_tree(job)

    threading.Thread(target=wait, daemon=True).start()
