"""What kind of file a capture is, by its content alone: the kinds of `readers/kinds/` are asked one after the other.

Everything unreadable is refused here, in one line that says what it is and what to do.
"""

from __future__ import annotations

import contextlib
import gzip
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

from inferprof import registry
from inferprof.errors import UserError, failure_of, without_exit
from inferprof.files import opened, read_json
from inferprof.readers.kind import HEAD_BYTES, Head, Kind
from inferprof.readers.kinds.unreadable import BEGIN

READABLE = (
    "read an Nsight Systems .sqlite export or what `nsys stats` writes, an Nsight Compute report or its pages, "
    "a Kineto trace or a table of torch's profiler, a profile or verbose log of ONNX Runtime, TensorRT's JSON or a "
    "log of trtexec, or the results of a load on a server, as it was written"
)


def recognise(path: Path) -> Kind:
    """The kind of a file, readable or not. Raises UserError where it is of none, or cannot be looked into."""
    head = head_of(path)
    for kind in sorted(registry.constants("inferprof.readers.kinds", Kind).values(), key=lambda kind: kind.rank):
        if _is_of(kind, head):
            return kind
    raise UserError(f"{path} is not a capture that can be read; {READABLE}")


def _is_of(kind: Kind, head: Head) -> bool:
    """Whether a file is of a kind; where that kind fails, another may know the file. UserError says what is wrong."""
    try:
        with without_exit():
            return kind.recognises(head)
    except UserError:
        raise
    except Exception as error:
        failure_of(error)
        return False


def identify(path: Path) -> Kind:
    """The kind of a file that can be read as it is. Raises UserError, with what to do, for every other file."""
    kind = recognise(path)
    if kind.refusal:
        raise UserError(f"{path} {kind.refusal}")
    return kind


def reason_in(path: Path) -> str | None:
    """Why there is no capture, where `inferprof capture` wrote that in its place; None for anything else."""
    if not head_of(path).raw.startswith(BEGIN):
        return None
    return str(read_json(path)["not_measured"])


def head_of(path: Path) -> Head:
    """The beginning of a file. Raises UserError where there is none, or it is cut short."""
    with _readable(path), opened(path) as file:
        return Head(path, file.read(HEAD_BYTES))


def check_file(path: Path) -> None:
    """Refuse, before it is opened, what has no end or waits for a writer. Raises UserError, and OSError of no file.

    The kernel's own files, as in /proc, say that they have 0 bytes; some of them wait for what comes next.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise UserError(
            f"{path} is a device, a pipe or a socket, no file: write what comes out of it to a file first"
        )
    if not status.st_size:
        raise UserError(f"{path} is empty: what wrote it was ended, or it was copied in part")


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """What keeps a file from being looked into becomes one line."""
    try:
        check_file(path)
        yield
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give one capture file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is cut short or damaged ({error}): copy it again") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
