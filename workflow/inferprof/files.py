"""Files that are whole or not there at all."""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import IO, Any, Literal, cast

from inferprof.errors import UserError

Kind = Literal[
    "record",
    "watched",
    "convert",
    "audit",
    "accuracy",
    "cost",
    "partition",
    "environment",
    "bandwidth",
    "ceilings",
    "build",
    "trtexec",
    "diagnosis",
    "config",
    "profilers",
]
"""The kinds of JSON files in a results folder: schemas/results.schema.json says what is read of each."""
NOT_OURS = "not what inferprof writes: move it away and run the study again"
MOST_UNPACKED = 1 << 30
"""Bytes of a file of JSON or CSV that are read: as Python's objects they take ten times that much memory."""
LONGEST_FAULT = 200
"""Characters of what is wrong with a file: jsonschema quotes the value, which may be thousands of samples."""


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it takes the name `path` only when the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write JSON that a person can read; NaN is refused, since it is not JSON."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def beside(path: Path, suffix: str) -> Path:
    """The file of the same name but for its suffix."""
    return path.with_name(path.stem + suffix)


def write_facts(product: Path, suffix: str, facts: Mapping[str, Any], seconds: float) -> None:
    """Write beside a product what is known of its making, its size, and how long that took."""
    write_json(beside(product, suffix), {**facts, "bytes": product.stat().st_size, "seconds": round(seconds, 1)})


def read_json(path: Path) -> Any:
    """Read JSON. Raises UserError with the place where it isn't JSON, or where there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from None


def read_document(path: Path, kind: Kind) -> dict[str, Any]:
    """Read a JSON file of a results folder. Raises UserError where it is missing, or not what inferprof writes."""
    try:
        content: dict[str, Any] = read_json(path)
        check_schema(content, "results", str(path), kind)
    except UserError as error:
        if not path.exists():
            raise
        raise UserError(f"{error}; {NOT_OURS}") from None
    return content


def check_schema(content: Any, schema: str, where: str, part: str | None = None) -> None:
    """Validate against schemas/{schema}.schema.json, or a definition in it.

    Raises UserError with the first violation in one line.
    """
    from jsonschema.exceptions import best_match

    error = best_match(_validator(schema, part).iter_errors(content))
    if error is None:
        return
    place = ".".join(str(step) for step in error.absolute_path) or "top level"
    allowed = ""
    if error.validator == "additionalProperties" and isinstance(error.schema, dict):
        allowed = f"; allowed: {', '.join(sorted(error.schema.get('properties', {})))}"
    elif isinstance(error.schema, dict) and "description" in error.schema:
        allowed = f" ({error.schema['description']})"
    half = LONGEST_FAULT // 2
    long = len(error.message) > LONGEST_FAULT
    fault = f"{error.message[:half]} … {error.message[-half:]}" if long else error.message
    raise UserError(f"{where}: {place}: {fault}{allowed}")


@functools.cache
def _validator(schema: str, part: str | None) -> Any:
    import jsonschema

    formats = jsonschema.FormatChecker(())
    formats.checks("numbers")(_only_numbers)
    content = json.loads(resources.files("inferprof").joinpath("schemas", f"{schema}.schema.json").read_text("utf-8"))
    whole = {**content, "$ref": f"#/$defs/{part}"} if part else content
    return jsonschema.Draft202012Validator(whole, format_checker=formats)


def _only_numbers(value: Any) -> bool:
    """The format `numbers`: `items` takes a hundred times as long, and records hold thousands of samples."""
    return not isinstance(value, list) or set(map(type, value)) <= {int, float}


def read_yaml(path: Path) -> Any:
    """Read YAML. Raises UserError where it isn't YAML, or where there is no such file."""
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None


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
    """All bytes of a file, unpacked. Raises UserError where it is cut short, damaged or above MOST_UNPACKED."""
    try:
        with opened(path) as file:
            content = file.read(MOST_UNPACKED + 1)
    except OSError as error:
        if not isinstance(error, gzip.BadGzipFile):
            raise UserError(f"{path}: {error.strerror}") from None
        raise UserError(f"{path} is cut short or damaged ({error}): copy it again") from None
    except (EOFError, zlib.error) as error:
        raise UserError(f"{path} is cut short or damaged ({error}): copy it again") from None
    if len(content) > MOST_UNPACKED:
        raise UserError(
            f"{path} holds more than {MOST_UNPACKED >> 20:,} MiB, the most that is read: capture fewer iterations"
        )
    return content
