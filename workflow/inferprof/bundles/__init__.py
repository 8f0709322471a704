"""A study's measured files as one archive that can be handed on, and back: checked, scrubbed, analysed again."""

from __future__ import annotations

import contextlib
import lzma
import shlex
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from inferprof.bundles.archive import MAX_BYTES, read_manifest, unpack
from inferprof.bundles.writing import Written, write
from inferprof.errors import UserError

__all__ = ["Written", "opened", "read_manifest", "render", "unbundle", "write"]


def unbundle(path: Path, out: Path) -> dict[str, Any]:
    """Unpack a bundle as the results folder `out`, which must not exist yet or be empty. Returns the manifest.

    Raises UserError for anything but a whole bundle, before there is anything at `out`.
    """
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"--out {out} is there already; a bundle is unpacked into a new folder")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as private:
            inside = Path(private, "results")
            manifest = unpack(path, inside)
            inside.replace(out)
    except OSError as error:
        raise UserError(f"--out {out}: {error.strerror}") from None
    return manifest


def render(manifest: Mapping[str, Any], out: Path, *, reported: bool = False) -> str:
    """What was unpacked to `out`, and its report, or the command that writes it."""
    study, machine, baseline = (manifest[name] for name in ("study", "machine", "baseline"))
    what = f"{out}: {len(manifest['files'])} files of {study} on {machine}; its report"
    if reported:
        return f"{what}, of its cases diagnosed anew:\n{out / 'reports' / study / 'REPORT.txt'}"
    flags = f"--study {study} --machine {machine}" + (f" --baseline {baseline}" if baseline else "")
    return f"{what}:\ninferprof report {shlex.quote(str(out))} {flags}"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Path]:
    """A results folder: as it is, or unpacked out of a bundle or a tar archive for as long as the block lasts."""
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
            if (total := sum(member.size for member in archive)) > MAX_BYTES:
                raise UserError(f"{path} would unpack to {total} bytes; at most {MAX_BYTES} are allowed")
            archive.extractall(folder, filter="data")
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise UserError(f"{path} is damaged, or climbs out of its folder: {error}") from None
