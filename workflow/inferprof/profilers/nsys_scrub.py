"""Takes out of an nsys export what is nobody's business: environments, host and user names, paths, other processes.

Nsight Systems stores the environment and the command line of every process that it can read, and the program's own
output. So this keeps what is known to be needed and drops the rest, rather than the other way round.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from inferprof.secret import redact, survivors

KEPT_TABLES: Final = re.compile(
    r"CUPTI_ACTIVITY_KIND_\w+|NVTX_EVENTS|CUDNN_EVENTS|CUBLAS_EVENTS|OSRT_API|CUDA_GRAPH_\w+|GPU_METRICS|"
    r"ENUM_\w+|TARGET_INFO_(?:GPU\w*|CUDA_\w+)|META_DATA_EXPORT|EXPORT_META_DATA|StringIds"
)
KEPT_META: Final = ("EXPORT_PRODUCT_NAME", "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")
_IDENTITIES: Final = ("uuid", "busLocation", "luid", "ctxswDevPath", "ctrlDevPath")
"""Columns of TARGET_INFO_GPU that name one card or the machine that it is in."""
_STRING_REFERENCE: Final = re.compile(
    r"(?:demangled|short|mangled)Name|name|\w*(?:name|Name|text|Text|string|String)Id"
)


class SecretFound(Exception):
    """A secret survived the scrubbing; the file must not be kept."""


def scrub(export: Path, secrets: Iterable[str] = ()) -> None:
    """Rewrite a SQLite export in place: only activity, its names and the GPU's properties stay.

    Raises SecretFound where a secret is still in the file's bytes.
    """
    secrets = list(secrets)
    with contextlib.closing(sqlite3.connect(export)) as database:
        # Deleted rows are overwritten, also in pages that VACUUM would not touch.
        database.execute("PRAGMA secure_delete = ON")
        _drop_tables(database)
        _drop_meta(database)
        _drop_identities(database)
        _drop_payloads(database)
        _drop_unused_strings(database)
        _redact_texts(database, secrets)
        database.commit()
        database.execute("VACUUM")
    if left := survivors(export.read_bytes(), secrets):
        raise SecretFound(f"{export} still holds {left[0]} after scrubbing")


def _drop_tables(database: sqlite3.Connection) -> None:
    for kind, name in database.execute(
        "SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view')"
    ).fetchall():
        if not KEPT_TABLES.fullmatch(name) and not name.startswith("sqlite_"):
            database.execute(f'DROP {kind} "{name}"')


def _drop_meta(database: sqlite3.Connection) -> None:
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        if _columns(database, table):
            database.execute(f"DELETE FROM {table} WHERE name NOT IN (?, ?, ?)", KEPT_META)


def _drop_identities(database: sqlite3.Connection) -> None:
    for table in ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"):
        for column in set(_IDENTITIES) & _columns(database, table):
            database.execute(f"UPDATE {table} SET {column} = NULL")


def _drop_payloads(database: sqlite3.Connection) -> None:
    """NVTX payloads are free text and bytes of the program."""
    for column in {"jsonText", "binaryData", "jsonTextId"} & _columns(database, "NVTX_EVENTS"):
        database.execute(f"UPDATE NVTX_EVENTS SET {column} = NULL")


def _drop_unused_strings(database: sqlite3.Connection) -> None:
    """Most strings belong to what was dropped (environments among them): keep those that kept rows refer to."""
    references = [
        # A NULL in the list would make NOT IN keep everything.
        f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'
        for table in _tables(database)
        if table != "StringIds" and not table.startswith(("ENUM_", "META_DATA", "EXPORT_META", "TARGET_INFO"))
        for column in sorted(_columns(database, table))
        if _STRING_REFERENCE.fullmatch(column)
    ]
    used = " UNION ".join(references) or "SELECT NULL WHERE 0"
    database.execute(f"DELETE FROM StringIds WHERE id NOT IN ({used})")


def _redact_texts(database: sqlite3.Connection, secrets: Iterable[str]) -> None:
    """Every text of every table, whatever its column is declared as; bytes that hold one are dropped."""
    clean = functools.lru_cache(maxsize=100_000)(lambda text: redact(text, secrets))

    def redacted(value: str | bytes) -> str | bytes | None:
        if isinstance(value, str):
            return clean(value)
        text = value.decode("utf-8", "replace")
        return None if clean(text) != text else value

    database.create_function("redact", 1, redacted, deterministic=True)
    for table in _tables(database):
        for column in sorted(_columns(database, table)):
            held = f"typeof(\"{column}\") IN ('text', 'blob')"
            database.execute(f'UPDATE "{table}" SET "{column}" = redact("{column}") WHERE {held}')


def _tables(database: sqlite3.Connection) -> list[str]:
    return [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()]


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in database.execute(f'PRAGMA table_info("{table}")')}
