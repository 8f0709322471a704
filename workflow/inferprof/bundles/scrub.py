"""Takes out of a bundle's files what is nobody's business: variables, host and user names, paths outside.

What is found is replaced in the content, also where that is packed; a file in which nothing is found keeps its bytes.
"""

from __future__ import annotations

import functools
import gzip
import io
import json
import re
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inferprof import secret
from inferprof.documents import NOT_OURS
from inferprof.errors import UserError
from inferprof.files import naming
from inferprof.profilers import kineto, nsys, nsys_scrub

if TYPE_CHECKING:
    import pyarrow as pa

Redact = Callable[[str], str]

_GZIP: Final = b"\x1f\x8b"
_VERSION: Final = re.compile(r"[\d.+:-]+")
_NOBODY: Final = ("root", "user", "ubuntu", "localhost")
"""Names of accounts and hosts that name nobody, and may be a word of any file."""


class Damaged(UserError):
    """A file that nobody can read: a bundle is made without it."""


def secrets(public: Iterable[str], *folders: Path) -> list[str]:
    """What no file may hold: variables of this process, host, user and these folders; longest first.

    Without what is `public`: a variable may hold the name of the GPU or of a model, and versions are no secrets.
    """
    words = list(public)
    values = [
        value
        for value in nsys.secrets()
        if value not in _NOBODY and not _VERSION.fullmatch(value) and not any(value in word for word in words)
    ]
    return sorted({*values, *(str(folder) for folder in folders if len(folder.parts) > 1)}, key=len, reverse=True)


def scrubber(secrets: Sequence[str]) -> Callable[[Path], bytes]:
    """What gives a file's content without secrets and outside paths.

    It raises Damaged for a binary file of an unknown kind, and for one that is damaged or not the JSON of its name;
    any other UserError where a secret would stay.
    """

    # The records of a study say the same things, thousands of times.
    redact = functools.lru_cache(maxsize=100_000)(lambda text: secret.redact(text, secrets))

    def unpacked(path: Path) -> bytes:
        content = path.read_bytes()
        if content.startswith(b"SQLite format 3\0"):
            return _sqlite(content, secrets)
        if content.startswith(b"PAR1"):
            return _parquet(content, redact)
        if content.startswith(_GZIP):
            plain = gzip.decompress(content)
            clean = _text(path, plain, redact)
            return content if clean == plain else gzip.compress(clean, mtime=0)
        return _text(path, content, redact)

    def scrubbed(path: Path) -> bytes:
        try:
            content = unpacked(path)
        except (ValueError, EOFError, gzip.BadGzipFile, zlib.error, sqlite3.Error) as error:
            raise Damaged(f"{path}: {error}; {NOT_OURS}") from None
        except nsys_scrub.SecretFound:
            raise _refused(path, "a secret") from None
        plain = gzip.decompress(content) if content.startswith(_GZIP) else content
        if left := secret.survivors(plain, secrets):
            raise _refused(path, left[0])
        return content

    return scrubbed


def _refused(path: Path, kind: str) -> UserError:
    return UserError(f"{path} still holds {kind} after scrubbing: nothing was bundled; move the file away")


def _text(path: Path, content: bytes, redact: Redact) -> bytes:
    """JSON value by value, so that it stays JSON; any other text as it is."""
    if b"\0" in content:
        raise Damaged(f"{path} is neither text nor a capture or table: a bundle can't take it; move it away")
    if Path(path.name.removesuffix(".gz")).suffix == ".json":
        try:
            value = json.loads(content)
        except ValueError as error:
            raise Damaged(f"{path} is not JSON: {error}; {NOT_OURS}") from None
        clean = _json(value, redact)
        return content if clean == value else json.dumps(clean, indent=1).encode() + b"\n"
    text = content.decode("utf-8", "replace")
    clean_text = redact(text)
    return content if clean_text == text else clean_text.encode()


def _json(value: Any, redact: Redact) -> Any:
    if isinstance(value, dict) and "traceEvents" in value:
        # The rest of a trace's top level names hosts, users and jobs.
        value = {key: value[key] for key in value if key in kineto.KEPT}
    return secret.redact_value("", value, redact)


def _parquet(content: bytes, redact: Redact) -> bytes:
    """Values, names of columns and what the schema says beside them; numbers are not looked at."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(content))
    except OSError as error:  # of the content: there is no file behind it
        raise ValueError(str(error)) from None
    fields = [
        pa.field(redact(field.name), field.type, field.nullable, _told(field.metadata, redact))
        for field in table.schema
    ]
    schema = pa.schema(fields, _told(table.schema.metadata, redact))
    clean = pa.table([_column(column, redact) for column in table.columns], schema=schema)
    if clean.equals(table, check_metadata=True):
        return content
    out = io.BytesIO()
    pq.write_table(clean, out)
    return out.getvalue()


def _column(column: pa.ChunkedArray, redact: Redact) -> pa.ChunkedArray:
    import pyarrow as pa

    if pa.types.is_primitive(column.type):
        return column
    values = [_as_text(value) for value in column.to_pylist()]
    clean = [secret.redact_value("", value, redact) for value in values]
    return column if clean == values else pa.chunked_array([pa.array(clean, column.type)])


def _as_text(value: Any) -> Any:
    """Bytes as the text that they may be."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _told(metadata: Mapping[bytes, bytes] | None, redact: Redact) -> dict[bytes, bytes]:
    """What a schema says beside the values: JSON, as pandas writes it, or text."""
    return {
        key: _of_metadata(key.decode("utf-8", "replace"), value, redact) for key, value in (metadata or {}).items()
    }


def _of_metadata(key: str, value: bytes, redact: Redact) -> bytes:
    text = value.decode("utf-8", "replace")
    try:
        said = json.loads(text)
    except ValueError:
        clean = secret.redact_value(key, text, redact)
        return value if clean == text else str(clean).encode()
    clean = secret.redact_value(key, said, redact)
    return value if clean == said else json.dumps(clean).encode()


def _sqlite(content: bytes, secrets: Sequence[str]) -> bytes:
    """An export of nsys; of any other database nothing stays."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "export.sqlite")
        with naming(copy):
            copy.write_bytes(content)
        nsys_scrub.scrub(copy, secrets)
        return copy.read_bytes()
