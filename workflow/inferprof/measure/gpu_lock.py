"""One measurement at a time per GPU, whoever starts it, or several jobs that measure nothing: a lock file named after
the GPU's UUID."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOGGER = logging.getLogger(__name__)


@contextlib.contextmanager
def gpu_lock(uuid: str, holder: str, folder: Path | None = None, *, shared: bool = False) -> Iterator[None]:
    """Hold the GPU for this process; waits, with one line that says for whom, while another one holds it.

    `shared` with others that measure nothing either: what is compiled on a GPU does not mind company.

    The kernel frees the lock with the process, however it ends, so no stale lock can stay. `folder` is the system's
    folder for temporary files, since two checkouts share the GPU too.
    """
    path = (folder or Path(tempfile.gettempdir())) / f"inferprof-{uuid}.lock"
    with contextlib.suppress(PermissionError):  # made by another user: it can be locked without being written
        path.touch(0o666)
    descriptor = os.open(path, os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY)
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            LOGGER.warning("waiting for GPU %s, held by %s", uuid, path.read_text("utf-8") or "another process")
            fcntl.flock(descriptor, kind)
        if os.access(path, os.W_OK):
            path.write_text(f"process {os.getpid()} ({holder})", encoding="utf-8")
        yield
    finally:
        os.close(descriptor)
