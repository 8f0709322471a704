"""A study's measured files as one archive that can be handed on, and back: checked, scrubbed, analysed again."""

from __future__ import annotations

import contextlib
import lzma
import shlex
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from inferprof.bundles.archive import MAX_BYTES, MAX_FILES, read_manifest, unpack
from inferprof.bundles.writing import Written, write
from inferprof.documents import Bundle
from inferprof.errors import UserError, refused_by_system, require_file
from inferprof.files import folder_made_whole
from inferprof.tables.records import read_cases
from inferprof.words import counted

__all__ = ["Written", "opened", "read_manifest", "render", "unbundle", "unpacked", "write"]


def unbundle(path: Path, out: Path) -> Bundle:
    """Unpack a bundle as the results folder `out`, which must not exist yet or be empty. Returns the manifest.

    Raises UserError for anything but a whole bundle, before there is anything at `out`.
    """
    with unpacked(path, out) as (_, manifest):
        return manifest


@contextlib.contextmanager
def unpacked(path: Path, out: Path) -> Iterator[tuple[Path, Bundle]]:
    """Yield a bundle's files in a folder, and its manifest; the folder becomes `out` when the block succeeds.

    Raises UserError as `unbundle`; what the block says of files, it says of those at `out`.
    """
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise UserError(f"--out {out} is there already; a bundle is unpacked into a new folder")
    inside = out
    try:
        with folder_made_whole(out) as inside:
            yield inside, _checked(path, inside)
    except UserError as error:
        raise UserError(str(error).replace(str(inside), str(out))) from None
    except OSError as error:
        if not refused_by_system(error):
            raise
        raise UserError(f"--out {out}: {error.strerror}") from None


def _checked(path: Path, folder: Path) -> Bundle:
    """The manifest of a bundle that is unpacked, and whose cases have names that stay in the folder."""
    manifest = unpack(path, folder)
    for name in manifest.files:
        if name.endswith("/cases.csv"):
            read_cases(folder / name)
    return manifest


def render(manifest: Bundle, out: Path, *, reported: bool = False) -> str:
    """What was unpacked to `out`, and its report, or the command that writes it."""
    study, machine, baseline = manifest.study, manifest.machine, manifest.baseline
    what = f"{out}: {counted(len(manifest.files), 'file')} of {study} on {machine}; its report"
    if reported:
        return f"{what}, of its cases diagnosed anew:\n{out / 'reports' / study / 'REPORT.txt'}"
    flags = f"--study {study} --machine {machine}" + (f" --baseline {baseline}" if baseline else "")
    return f"{what}:\ninferprof report {shlex.quote(str(out))} {flags}"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Path]:
    """A results folder: as it is, or unpacked out of a bundle or a tar archive for as long as the block lasts."""
    if path.is_file():
        require_file(path, MAX_BYTES)
    if path.is_dir():
        yield path
    elif path.is_file() and zipfile.is_zipfile(path):
        with tempfile.TemporaryDirectory() as folder:
            unpack(path, Path(folder, "results"))
            yield Path(folder, "results")
    elif path.is_file() and tarfile.is_tarfile(path):
        with tempfile.TemporaryDirectory() as folder:
            _extract(path, folder)
            yield Path(folder)
    else:
        raise UserError(f"{path} is neither a results folder nor a bundle or tar archive of one")


def _extract(path: Path, folder: str) -> None:
    """A tar archive of a results folder. Raises UserError where it is damaged, too large or climbs out."""
    try:
        with tarfile.open(path) as archive:
            _check_members(path, archive)
            archive.extractall(folder, filter="data")
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise UserError(f"{path} is damaged, or climbs out of its folder: {error}") from None


def _check_members(path: Path, archive: tarfile.TarFile) -> None:
    """Kinds and sizes, as far as the archive is read: what lies behind a limit is not unpacked to be counted."""
    total = 0
    for number, member in enumerate(archive, 1):
        total += member.size
        if number > MAX_FILES:
            raise UserError(f"{path} holds more than {MAX_FILES} files")
        if total > MAX_BYTES:
            raise UserError(f"{path} would unpack to {total} bytes or more; at most {MAX_BYTES} are allowed")
        if not (member.isreg() or member.isdir()):
            raise UserError(
                f"{path} holds {member.name[:200]!r}, which is neither a file nor a folder: pack the files"
            )
