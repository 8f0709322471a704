"""The archive: a zip with a manifest, the same bytes each time, and trusted in nothing when it is read.

A zip, since its directory tells names, kinds and sizes of all files before one of them is unpacked. The files of an
archive are named in its manifest with size and SHA-256, and nothing else is in it.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from inferprof import documents
from inferprof.case import is_plain, require_plain
from inferprof.documents import Bundle
from inferprof.documents.study import BundledFile
from inferprof.errors import UserError, require_file

MANIFEST: Final = "bundle.json"
SCHEMA: Final = 1
MAX_FILES: Final = 100_000
MAX_BYTES: Final = 8 * 10**9
MAX_RATIO: Final = 100
"""Of an archive of more than RATIO_FROM unpacked bytes. Records pack to a fifth, tables to nearly nothing less."""
RATIO_FROM: Final = 64 * 10**6
MAX_MANIFEST: Final = 64 * 10**6
LONGEST_REASON: Final = 400
_NAME: Final = re.compile(r"(?=.{1,500}\Z)\w[\w.+=-]{0,199}(?:/\w[\w.+=-]{0,199})*", re.ASCII)
"""Paths below the folder: no part is empty or begins with a dot, and all are short and plain to every system."""
OF_DESKTOPS: Final = re.compile(r"^__MACOSX/|(?:^|/)(?:\.DS_Store|\._[^/]*|Thumbs\.db|desktop\.ini)$")
"""What desktops add to a folder that they pack."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The time of all files: the first that a zip knows."""
_MODE: Final = stat.S_IFREG | 0o644
_CHUNK: Final = 1 << 20


def write(out: Path, manifest: Mapping[str, Any], folder: Path, names: Iterable[str]) -> dict[str, int]:
    """Write these files of a folder and their manifest, in the order of their names. Returns each packed size."""
    with zipfile.ZipFile(out, "w") as archive:
        _add(archive, MANIFEST, json.dumps(manifest, indent=1, allow_nan=False).encode() + b"\n")
        for name in sorted(names):
            _add(archive, name, (folder / name).read_bytes())
        return {info.filename: info.compress_size for info in archive.infolist()}


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = 3  # Unix, whatever system this is: the mode below is one of Unix
    info.external_attr = _MODE << 16
    archive.writestr(info, content, zipfile.ZIP_DEFLATED, compresslevel=9)


def read_manifest(path: Path) -> Bundle:
    """The manifest of a bundle whose directory is sound. Raises UserError for anything else."""
    with _Reader(path) as reader:
        return reader.manifest()[0]


def unpack(path: Path, folder: Path) -> Bundle:
    """Unpack a bundle into a new folder, the manifest with it, and return the manifest.

    Raises UserError where anything is not as the manifest says; `folder` may then hold a part of the files.
    """
    with _Reader(path) as reader:
        manifest, content = reader.manifest()
        reader.require_names(manifest.files)
        for name, facts in manifest.files.items():
            reader.extract(name, facts, folder / name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).write_bytes(content)
    return manifest


class _Reader:
    """An archive that is read once; every way in which it is unlike a bundle is one line for the user."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.archive = zipfile.ZipFile(require_file(path, MAX_BYTES))
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise self.refused(f"is damaged, or no bundle: {error}") from None
        self.infos = _files_of(self.archive.infolist())
        self.top = _top_of(self.infos)

    def __enter__(self) -> _Reader:
        try:
            self._check_directory()
        except UserError:
            self.archive.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.archive.close()

    def refused(self, why: str) -> UserError:
        # What zipfile and jsonschema quote may be as long as the archive.
        short = why if len(why) <= LONGEST_REASON else f"{why[:LONGEST_REASON]} …"
        return UserError(f"{self.path} {short}; nothing was unpacked")

    def name_of(self, info: zipfile.ZipInfo) -> str:
        """A file's name below the folder that all of them are in, where there is one."""
        return info.filename.removeprefix(self.top)

    def _check_directory(self) -> None:
        """Names, kinds and sizes of all files, before one of them is read."""
        if len(self.infos) > MAX_FILES:
            raise self.refused(f"holds {len(self.infos)} files; at most {MAX_FILES} are allowed")
        taken: set[str] = set()
        for info in self.infos:
            self._check_file(info)
            # Two names that differ in case are one file on some systems.
            name = self.name_of(info).casefold()
            if name in taken:
                raise self.refused(f"holds {self.name_of(info)!r} twice")
            taken.add(name)
        if both := {parent for name in taken for parent in _parents(name)} & taken:
            raise self.refused(f"holds {min(both)!r} as a file and as a folder")
        total = sum(info.file_size for info in self.infos)
        if total > MAX_BYTES:
            raise self.refused(f"would unpack to {total} bytes; at most {MAX_BYTES} are allowed")
        if total > max(RATIO_FROM, MAX_RATIO * self.path.stat().st_size):
            raise self.refused(f"would unpack to more than {MAX_RATIO} times its size")

    def _check_file(self, info: zipfile.ZipInfo) -> None:
        # ZipInfo cuts a name at its first NUL; orig_filename is what the archive says.
        if not _is_path(self.name_of(info)) or info.filename != info.orig_filename:
            raise self.refused(f"holds the name {info.orig_filename!r}, which is no plain path inside a folder")
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise self.refused(f"holds {info.filename!r}, which is no file but a link or a device")
        if info.flag_bits & 0x1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self.refused(f"holds {info.filename!r} encrypted or packed in a way that bundles are not")

    def manifest(self) -> tuple[Bundle, bytes]:
        """The manifest, and as it is written."""
        entry = next((info for info in self.infos if self.name_of(info) == MANIFEST), None)
        if entry is None:
            raise self.refused(f"is no bundle: it holds no {MANIFEST}")
        if entry.file_size > MAX_MANIFEST:
            raise self.refused(f"holds a {MANIFEST} of {entry.file_size} bytes; at most {MAX_MANIFEST} are allowed")
        try:
            with self.open(MANIFEST) as file:
                content = self._read(file, MANIFEST, entry.file_size)
            head = json.loads(content)
        except (ValueError, RecursionError):
            raise self.refused(f"holds a {MANIFEST} that is not JSON") from None
        schema = head.get("schema") if isinstance(head, dict) else None
        if schema != SCHEMA:
            raise self.refused(f"is a bundle of schema {schema!r}; this version reads {SCHEMA}")
        try:
            manifest: Bundle = documents.decode(content, "bundle")
            require_plain("study", *manifest.study.split("/"))
            require_plain("machine", manifest.machine)
            require_plain("baseline", *(manifest.baseline or "a").split("/"))
        except (ValueError, UserError) as error:
            raise self.refused(f"has a faulty {MANIFEST}: {str(error).removeprefix(': ')}") from None
        return manifest, content

    def require_names(self, wanted: Iterable[str]) -> None:
        present, wanted = set(map(self.name_of, self.infos)) - {MANIFEST}, set(wanted)
        if lacking := sorted(wanted - present):
            raise self.refused(f"lacks {lacking[0]!r}, which its manifest names ({len(lacking)} missing)")
        if foreign := sorted(present - wanted):
            raise self.refused(f"holds {foreign[0]!r}, which its manifest does not name ({len(foreign)} unknown)")

    def open(self, name: str) -> IO[bytes]:
        try:
            return self.archive.open(f"{self.top}{name}")
        except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
            raise self.refused(f"is damaged at {name!r}: {error}") from None

    def extract(self, name: str, facts: BundledFile, to: Path) -> None:
        """One file, counted and hashed on its way: the sizes in the directory may be lies."""
        to.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        left = facts.bytes
        with self.open(name) as file, to.open("xb") as target:
            while chunk := self._read(file, name, _CHUNK):
                left -= len(chunk)
                if left < 0:
                    break
                digest.update(chunk)
                target.write(chunk)
        if left or digest.hexdigest() != facts.sha256:
            raise self.refused(f"holds {name!r} in another size or content than its manifest says")

    def _read(self, file: IO[bytes], name: str, size: int) -> bytes:
        try:
            return file.read(size)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            raise self.refused(f"is damaged at {name!r}: {error}") from None


def _files_of(infos: Sequence[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    """What is packed, without the folders around it and what desktops leave there: of a bundle that was unpacked and
    packed again. Its files are held against its manifest all the same."""
    kept = [info for info in infos if not OF_DESKTOPS.search(info.filename)]
    around = {f"{parent}/" for info in kept for parent in _parents(info.filename.rstrip("/"))}
    return [info for info in kept if info.filename not in around or info.file_size]


def _top_of(infos: Sequence[zipfile.ZipInfo]) -> str:
    """`folder/` where all files are in one with the manifest, else nothing."""
    tops = {info.filename.partition("/")[0] for info in infos if "/" in info.filename}
    if len(tops) != 1 or any("/" not in info.filename for info in infos):
        return ""
    (top,) = tops
    return f"{top}/" if any(info.filename == f"{top}/{MANIFEST}" for info in infos) else ""


def _is_path(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and all(map(is_plain, name.split("/")))


def _parents(name: str) -> Iterable[str]:
    parts = name.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))
