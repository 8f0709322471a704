"""Files as they are given → files that can be read: unpacked, exported by their tool, with what kind each is."""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import lzma
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from inferprof.errors import UserError
from inferprof.readers import capture_file, carried
from inferprof.readers.kind import Kind

MOST_BYTES: Final = 1 << 34
"""Of what is unpacked."""
MOST_FILES: Final = 40
"""Of an archive."""
_PACKED: Final[dict[bytes, Callable[[Path], Any]]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"\xfd7zXZ\0": lzma.LZMAFile,
    b"BZh": bz2.BZ2File,
}
_DAMAGED: Final = (EOFError, OSError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, tarfile.TarError)


@dataclass(frozen=True)
class Opened:
    """A file that can be read. `name`: as it was given, in the file `given`."""

    path: Path
    given: Path
    name: str
    kind: Kind


def opened(paths: Sequence[Path], folder: Path, beside: Sequence[Path] = ()) -> list[Opened]:
    """The files, unpacked into a folder where they have to be, each with a name that it shares with none beside it.

    Raises UserError for one that can't be read."""
    files: list[Opened] = []
    for path in paths:
        if path.is_dir():
            raise UserError(f"{path} is a folder; give capture files: `inferprof explain --help`")
        with named_as_given(path, folder):
            files += _opened(path, _name(path, [*paths, *beside]), folder)
    return files


def _name(path: Path, others: Sequence[Path]) -> str:
    """The end of the path that no other one has: mostly the file's name."""
    own = _parts(path)
    rest = {_parts(other) for other in others} - {own}
    length = next(n for n in range(1, len(own) + 1) if all(other[-n:] != own[-n:] for other in rest))
    return "/".join(own[-length:])


def _parts(path: Path) -> tuple[str, ...]:
    return path.absolute().parts


@contextlib.contextmanager
def named_as_given(path: Path, folder: Path) -> Iterator[None]:
    """What is said of a file that was unpacked into the folder is said of the one that was given."""
    try:
        yield
    except UserError as error:
        raise UserError(re.sub(rf"{re.escape(str(folder))}/\S+", lambda _: str(path), str(error))) from None


def _opened(path: Path, name: str, folder: Path, given: Path | None = None) -> Iterator[Opened]:
    given = given or path
    if opener := _packed_by(path):
        path = _unpacked(path, opener, folder)
    if members := list(_members(path, folder)):
        for member in members:
            yield from _opened(member, f"{name}/{member.name}", folder, given)
        return
    path = carried.plain(path, folder)
    kind = capture_file.recognise(path)
    if kind.refusal and kind.convert:
        path = kind.convert(path, folder)
        kind = capture_file.recognise(path)
    if kind.refusal:
        raise UserError(f"{path} {kind.refusal}")
    if kind.read is None:
        raise UserError(f"{path} holds {kind.title}: {capture_file.reason_in(path)}")
    yield Opened(path, given, name, kind)


def _packed_by(path: Path) -> Callable[[Path], Any] | None:
    head = _head(path)
    return next((opener for magic, opener in _PACKED.items() if head.startswith(magic)), None)


def _head(path: Path) -> bytes:
    try:
        capture_file.check_file(path)
        with path.open("rb") as file:
            return file.read(6)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def _unpacked(path: Path, opener: Callable[[Path], Any], folder: Path) -> Path:
    """The content of a packed file, with the name that it has without the packing, and its neighbours in view."""
    inside = Path(folder, f"{len(list(folder.iterdir()))}")
    inside.mkdir()
    out = inside / (path.name.rpartition(".")[0] or path.name)
    left = MOST_BYTES
    try:
        with opener(path) as source, out.open("wb") as target:
            while chunk := source.read(1 << 20):
                left -= len(chunk)
                if left < 0:
                    raise UserError(f"{path} unpacks to more than {MOST_BYTES >> 30} GiB: unpack it yourself")
                target.write(chunk)
    except _DAMAGED as error:
        raise UserError(f"{path} is cut short or damaged ({error}): copy it again") from None
    return out


def _members(path: Path, folder: Path) -> Iterator[Path]:
    """The files of an archive, by their last name; none where it is no archive."""
    is_zip = _head(path).startswith(b"PK\x03\x04")
    if not is_zip and not _is_tar(path):
        return
    inside = Path(folder, f"{len(list(folder.iterdir()))}")
    inside.mkdir()
    try:
        for number, (name, size, source) in enumerate(_of_zip(path) if is_zip else _of_tar(path)):
            if number >= MOST_FILES or size > MOST_BYTES:
                raise UserError(f"{path} holds more than {MOST_FILES} files, or too large ones: unpack what you mean")
            own = inside / str(number)
            own.mkdir()
            with source() as stream, (own / name).open("wb") as target:
                shutil.copyfileobj(stream, target)
            yield own / name
    except _DAMAGED as error:
        raise UserError(f"{path} is cut short or damaged ({error}): copy it again") from None


def _is_tar(path: Path) -> bool:
    """Whether a file is a tar as it is; tarfile's own question also tries packings, which read zeros to their end."""
    try:
        with tarfile.open(path, "r:"):
            return True
    except tarfile.TarError:
        return False


def _of_zip(path: Path) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    from inferprof.bundles.archive import MANIFEST, OF_DESKTOPS  # with what writes bundles

    with zipfile.ZipFile(path) as archive:
        if MANIFEST in archive.namelist():
            raise UserError(f"{path} is a bundle of a study: `inferprof unbundle {path} --out FOLDER --report`")
        for info in archive.infolist():
            if not (info.is_dir() or OF_DESKTOPS.search(info.filename)) and (name := Path(info.filename).name):
                yield name, info.file_size, functools.partial(archive.open, info)


def _of_tar(path: Path) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    from inferprof.bundles.archive import OF_DESKTOPS

    with tarfile.open(path, "r:") as archive:
        for member in archive:
            if member.isfile() and not OF_DESKTOPS.search(member.name) and (name := Path(member.name).name):
                yield name, member.size, functools.partial(archive.extractfile, member)
