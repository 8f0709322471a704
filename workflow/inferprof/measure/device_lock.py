"""One measurement at a time per device, whoever starts it, or several jobs that measure nothing: a lock file for each
GPU, named after its UUID, and one for the CPU."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from inferprof.machine.hardware import Gpu

CPU = "cpu"
LOGGER = logging.getLogger(__name__)


@contextlib.contextmanager
def hold(gpus: Iterable[Gpu], holder: str, folder: Path | None = None, *, shared: bool = False) -> Iterator[None]:
    """Hold these GPUs, or the CPU where there are none, for this process; `holder` says what for.

    Waits, with one line that says for whom, while another process holds one of them. With GPUs the CPU is shared:
    measurements on several GPUs go side by side, and none beside one of the CPU, which takes all cores.

    `shared` with others that measure nothing either: what is compiled does not mind company.

    The kernel frees a lock with the process, however it ends, so no stale lock can stay. `folder` is the system's
    folder for temporary files, since two checkouts share the devices too.
    """
    uuids = sorted(gpu.uuid for gpu in gpus)  # in one order, so that no two wait for each other
    with contextlib.ExitStack() as locks:
        for name, together in ((CPU, shared or bool(uuids)), *((uuid, shared) for uuid in uuids)):
            locks.enter_context(_locked(name, holder, folder or Path(tempfile.gettempdir()), shared=together))
        yield


@contextlib.contextmanager
def _locked(name: str, holder: str, folder: Path, *, shared: bool) -> Iterator[None]:
    path = folder / f"inferprof-{name}.lock"
    with contextlib.suppress(PermissionError):  # made by another user: it can be locked without being written
        path.touch(0o666)
    descriptor = os.open(path, os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY)
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            device = "the CPU" if name == CPU else f"GPU {name}"
            LOGGER.warning("waiting for %s, held by %s", device, path.read_text("utf-8") or "another process")
            fcntl.flock(descriptor, kind)
        if os.access(path, os.W_OK):
            path.write_text(f"process {os.getpid()} ({holder})", encoding="utf-8")
        yield
    finally:
        os.close(descriptor)
