"""Files that are whole or not there at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import glob
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from inferprof import documents, escape
from inferprof.documents import Kind
from inferprof.errors import LARGEST_FILE, UserError, require_file

T = TypeVar("T")
UNFINISHED = ".unfinished"
_REMOVES = "import shutil, sys; sys.stdin.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"
"""A program that removes a folder when its parent ends: that is what closes its stdin."""


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it takes the name `path` only when the block succeeds.

    A link stays one, and its file is replaced. A device or a pipe is written to: root would replace /dev/null.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and (not path.is_file() or path.parts[:2] == ("/", "dev")):
        with naming(path):
            yield path
        return
    path = path.resolve() if path.is_symlink() else path
    make_folder(path.parent)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with naming(path, partial):
            yield partial
            partial.replace(path)
    finally:
        with contextlib.suppress(OSError):  # of a name that is too long
            partial.unlink()


@contextlib.contextmanager
def naming(path: Path, partial: Path | None = None) -> Iterator[None]:
    """An error of the system that names no file, as a full disk does, or the one beside it, names this one."""
    try:
        yield
    except OSError as error:
        of_partial = partial is not None and str(error.filename) == str(partial)
        if of_partial and error.errno == errno.ENOENT:
            raise _nothing_can_be_made(path) from None
        if error.filename is None or of_partial:
            error.filename = str(path)
        raise


def make_folder(path: Path) -> None:
    """Make a folder and those around it, where it is not there yet. Raises PermissionError where none can be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:
        raise _nothing_can_be_made(path) from None


def _nothing_can_be_made(path: Path) -> PermissionError:
    """For what /proc says instead."""
    return PermissionError(errno.EACCES, "nothing can be made there", str(path))


@contextlib.contextmanager
def folder_made_whole(out: Path) -> Iterator[Path]:
    """Yield the path of a folder to make; it takes the name `out` only when the block succeeds.

    It lies in a private folder near `out`. That goes with this process, however it ends: a watcher removes it, or the
    next start, where that was killed too.
    """
    near = next(folder for folder in out.absolute().parents if folder.exists())
    for left in near.glob(f".{glob.escape(out.name)}-*{UNFINISHED}"):
        with contextlib.suppress(OSError), _locked(left):
            shutil.rmtree(left)
    try:
        private = Path(tempfile.mkdtemp(UNFINISHED, f".{out.name}-", near))
    except FileNotFoundError:
        raise _nothing_can_be_made(out) from None
    with (
        _locked(private),
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _REMOVES, private],
            stdin=subprocess.PIPE,
            start_new_session=True,
        ),
    ):
        yield private / "results"
        make_folder(out.parent)
        (private / "results").replace(out)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which goes with the process. Raises OSError where another one holds it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write JSON that a person can read; NaN is refused, since it is not JSON."""
    write_text(path, as_json(value))


def as_json(value: Any) -> str:
    """JSON that a person can read."""
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def beside(path: Path, suffix: str) -> Path:
    """The file of the same name but for its suffix."""
    return path.with_name(path.stem + suffix)


def read_json(path: Path) -> Any:
    """Read JSON. Raises UserError with the place where it isn't JSON, or where there is no such file."""
    try:
        return json.loads(require_file(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from None


def unless_damaged(read: Callable[..., T], *arguments: object, **options: object) -> T | None:
    """What `read` gives; None where it raises UserError, which `left_out` says: a damaged file costs itself alone."""
    try:
        return read(*arguments, **options)
    except UserError as error:
        left_out(str(error))
        return None


@functools.cache
def left_out(why: str) -> None:
    """Say once, on stderr, that a file is left out, and why."""
    sys.stderr.write(escape.line(f"inferprof: left out: {why}") + "\n")


def write_document(path: Path, kind: Kind, content: Any) -> None:
    """Write a JSON file of a results folder; ValueError where it is one that inferprof would not read."""
    write_text(path, document_text(content, kind))


def document_text(content: Any, kind: Kind) -> str:
    """A document as JSON. Raises ValueError where it is one that inferprof would not read."""
    text = as_json(content)
    documents.decode(text.encode(), kind)
    return text


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked where its content is a gzip, whatever its name."""
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with gzip.GzipFile(fileobj=raw) if packed else contextlib.nullcontext(raw) as file:
            yield cast("IO[bytes]", file)


def unpacked(path: Path) -> bytes:
    """All bytes of a file, unpacked. Raises UserError where it is cut short, damaged or above LARGEST_FILE."""
    try:
        with opened(path) as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        if not isinstance(error, gzip.BadGzipFile):
            raise UserError(f"{path}: {error.strerror}") from None
        raise UserError(f"{path} is cut short or damaged ({error}): copy it again") from None
    except (EOFError, zlib.error) as error:
        raise UserError(f"{path} is cut short or damaged ({error}): copy it again") from None
    if len(content) > LARGEST_FILE:
        raise UserError(
            f"{path} holds more than {LARGEST_FILE >> 20:,} MiB, the most that is read: capture fewer iterations"
        )
    return content


def text_of(path: Path, encoding: str = "utf-8-sig", errors: str = "replace") -> str:
    """A file of another program as text, unpacked, without its byte-order mark. Raises UserError as `unpacked`."""
    return unpacked(path).decode(encoding, errors)
