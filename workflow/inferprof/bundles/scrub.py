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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from inferprof.errors import UserError
from inferprof.files import NOT_OURS
from inferprof.profilers import kineto, nsys, nsys_scrub

Redact = Callable[[str], str]

_NAMES_A_SECRET: Final = r"\w*(?:TOKEN|SECRET|PASSW(?:OR)?D|CREDENTIALS?|API_?KEY)"
_SECRET_KEY: Final = re.compile(_NAMES_A_SECRET, re.IGNORECASE)
_ASSIGNED_SECRET: Final = re.compile(rf"(\b{_NAMES_A_SECRET}\s*[=:]\s*)[^\s\"',;]+", re.IGNORECASE)
"""`HF_TOKEN=…` in a log: of another process or machine, so that its value is in no environment of ours."""
_KNOWN_TOKEN: Final = re.compile(
    r"\b(?:hf_\w{20,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|nvapi-[\w-]{20,}|sk-[\w-]{20,}|AKIA[A-Z0-9]{16})"
)
"""Tokens that show by their prefix what they are: Hugging Face, GitHub, GitLab, NVIDIA, OpenAI, AWS."""
_VERSION: Final = re.compile(r"[\d.+:-]+")
_NOBODY: Final = ("root", "user", "ubuntu", "localhost")
"""Names of accounts and hosts that name nobody, and may be a word of any file."""


def secrets(public: Iterable[str], *folders: Path) -> list[str]:
    """What no file may hold: variables of this process, host, user and these folders; longest first.

    Without what is `public`: a variable may hold the name of the GPU or of a model, and versions are no secrets.
    """
    words = list(public)
    found = [
        secret
        for secret in nsys.secrets()
        if secret not in _NOBODY and not _VERSION.fullmatch(secret) and not any(secret in word for word in words)
    ]
    return sorted({*found, *(str(folder) for folder in folders if len(folder.parts) > 1)}, key=len, reverse=True)


def scrubber(secrets: Sequence[str]) -> Callable[[Path], bytes]:
    """What gives a file's content without secrets and outside paths.

    It raises UserError for a binary file of an unknown kind, and for one that is damaged or not the JSON of its name.
    """

    # The records of a study say the same things, thousands of times.
    @functools.lru_cache(maxsize=100_000)
    def redact(text: str) -> str:
        text = _KNOWN_TOKEN.sub(nsys_scrub.REDACTED, nsys_scrub.redact(text, secrets))
        return _ASSIGNED_SECRET.sub(rf"\1{nsys_scrub.REDACTED}", text)

    def unpacked(path: Path) -> bytes:
        content = path.read_bytes()
        if content.startswith(b"SQLite format 3\0"):
            return _sqlite(content, secrets)
        if content.startswith(b"PAR1"):
            return _parquet(content, redact)
        if content.startswith(b"\x1f\x8b"):
            plain = gzip.decompress(content)
            clean = _text(path, plain, redact)
            return content if clean == plain else gzip.compress(clean, mtime=0)
        return _text(path, content, redact)

    def scrubbed(path: Path) -> bytes:
        try:
            return unpacked(path)
        except (ValueError, EOFError, gzip.BadGzipFile, zlib.error, sqlite3.Error) as error:
            raise UserError(f"{path}: {error}; {NOT_OURS}") from None

    return scrubbed


def _text(path: Path, content: bytes, redact: Redact) -> bytes:
    """JSON value by value, so that it stays JSON; any other text as it is."""
    if b"\0" in content:
        raise UserError(f"{path} is neither text nor a capture or table: a bundle can't take it; move it away")
    if Path(path.name.removesuffix(".gz")).suffix == ".json":
        try:
            value = json.loads(content)
        except ValueError as error:
            raise UserError(f"{path} is not JSON: {error}") from None
        clean = _json(value, redact)
        return content if clean == value else json.dumps(clean, indent=1).encode() + b"\n"
    text = content.decode("utf-8", "replace")
    clean_text = redact(text)
    return content if clean_text == text else clean_text.encode()


def _json(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_json(item, redact) if isinstance(item, (str, list, dict)) else item for item in value]
    if isinstance(value, dict):
        # The rest of a trace's top level names hosts, users and jobs.
        kept = [key for key in value if key in kineto.KEPT] if "traceEvents" in value else list(value)
        return {
            redact(key): nsys_scrub.REDACTED if _is_secret(key, value[key]) else _json(value[key], redact)
            for key in kept
        }
    return value


def _is_secret(key: str, value: Any) -> bool:
    return isinstance(value, str) and _SECRET_KEY.fullmatch(key) is not None


def _parquet(content: bytes, redact: Redact) -> bytes:
    import pandas as pd

    frame = pd.read_parquet(io.BytesIO(content))
    changed = False
    for column in frame.columns[[not pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes]]:
        texts = {text for text in frame[column].dropna().unique() if isinstance(text, str)}
        if replaced := {text: clean for text in texts if (clean := redact(text)) != text}:
            frame[column] = frame[column].replace(replaced)
            changed = True
    if not changed:
        return content
    out = io.BytesIO()
    frame.to_parquet(out)
    return out.getvalue()


def _sqlite(content: bytes, secrets: Sequence[str]) -> bytes:
    """An export of nsys; of any other database nothing stays."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "export.sqlite")
        copy.write_bytes(content)
        nsys_scrub.scrub(copy, secrets)
        return copy.read_bytes()
