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
import math
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from inferprof import documents
from inferprof.documents import Kind
from inferprof.errors import UserError, meant

if TYPE_CHECKING:
    import jsonschema

UNFINISHED = ".unfinished"
_REMOVES = "import shutil, sys; sys.stdin.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"
"""A program that removes a folder when its parent ends: that is what closes its stdin."""
MOST_UNPACKED = 1 << 30
"""Bytes of a file of JSON or CSV that are read: as Python's objects they take ten times that much memory."""
DEEPEST, MOST_VALUES, LARGEST = 50, 100_000, 2**63
"""What a config or a model's description may hold: aliases make millions of values of a few lines."""
NOT_TEXT = "YAML reads yes, no, on, off, null, numbers and dates as values: write the key in quotes"


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
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from None


def write_document(path: Path, kind: Kind, content: Any) -> None:
    """Write a JSON file of a results folder; ValueError where it is one that inferprof would not read."""
    write_text(path, document_text(content, kind))


def document_text(content: Any, kind: Kind) -> str:
    """A document as JSON. Raises ValueError where it is one that inferprof would not read."""
    text = as_json(content)
    documents.decode(text.encode(), kind)
    return text


def check_schema(content: Any, schema: str, where: str) -> None:
    """Validate against schemas/{schema}.schema.json.

    Raises UserError with the first violation in one line.
    """
    from jsonschema.exceptions import best_match

    check_values(content, where)
    validator = _validator(schema)
    error = best_match(validator.iter_errors(content))
    if error is None:
        return
    place = ".".join(str(step) for step in error.absolute_path) or "top level"
    allowed = ""
    if error.validator == "additionalProperties" and isinstance(error.schema, dict):
        keys = sorted(error.schema.get("properties", {}))
        allowed = f"; allowed: {', '.join(keys)}{meant(error.instance.keys() - keys, keys)}"
    elif described := _described(error, validator.schema):
        allowed = f" ({described})"
    if error.instance is None:
        allowed += "; null, as of a key with nothing behind it: give a value, or leave it out"
    raise UserError(f"{where}: {place}: {documents.one_line(_violation(error))}{allowed}")


def _described(error: jsonschema.ValidationError, schema: Any) -> str | None:
    """What the schema says of a value; else, where that is an entry of a list, what it says of the list."""
    *above, last, _ = (None, *error.absolute_schema_path)
    part: Any = error.schema
    if last == "items" and "description" not in part:
        part = functools.reduce(lambda at, step: at.get(step, {}) if isinstance(at, dict) else {}, above[1:], schema)
    return part.get("description") if isinstance(part, dict) else None


JSON_TYPES: Final[Mapping[str, str]] = {
    **{"array": "a list", "object": "a mapping of keys to values", "string": "a string", "boolean": "true or false"},
    **{"integer": "a whole number", "number": "a number", "null": "null"},
}
"""A type in a JSON schema → what it is in YAML."""


def _violation(error: jsonschema.ValidationError) -> str:
    """What a schema does not allow, in YAML's words where it is the type of a value."""
    import yaml

    if error.validator != "type":
        described = error.validator == "pattern" and _described(error, {})
        return f"{error.instance!r} does not match" if described else str(error.message)
    wanted = error.validator_value if isinstance(error.validator_value, list) else [str(error.validator_value)]
    scalar = isinstance(error.instance, str | int | float) and not isinstance(error.instance, bool)
    listed = wanted == ["array"] and scalar
    example = f": write {yaml.safe_dump([error.instance], default_flow_style=True).strip()}" if listed else ""
    return f"{error.instance!r} is not {' or '.join(JSON_TYPES[name] for name in wanted)}{example}"


@functools.cache
def _validator(schema: str) -> Any:
    import jsonschema

    content = json.loads(resources.files("inferprof").joinpath("schemas", f"{schema}.schema.json").read_text("utf-8"))
    draft = jsonschema.Draft202012Validator
    types = draft.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)  # 8.0 is no size
    extend: Any = jsonschema.validators.extend
    return extend(draft, type_checker=types)(content)


def check_values(content: Any, where: str) -> None:
    """Refuse what no schema can: NaN, infinity, numbers of many digits, and what is nested or repeated endlessly."""
    stack: list[tuple[Any, tuple[str, ...]]] = [(content, ())]
    values = 0
    while stack:
        value, path = stack.pop()
        values += 1
        place = ".".join(path) or "top level"
        if values > MOST_VALUES or len(path) > DEEPEST:
            raise UserError(f"{where}: nested deeper than {DEEPEST}, or of more than {MOST_VALUES} values (aliases?)")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{where}: {place}: {value} is not a finite number")
        if isinstance(value, int) and abs(value) > LARGEST:
            raise UserError(f"{where}: {place}: a number beyond {LARGEST}")
        if isinstance(value, Mapping):
            if other := [key for key in value if not isinstance(key, str)]:
                raise UserError(f"{where}: {place}: the key {other[0]!r} is not a string; {NOT_TEXT}")
            stack += ((entry, (*path, key)) for key, entry in value.items())
        elif isinstance(value, list | tuple):
            stack += ((entry, (*path, str(index))) for index, entry in enumerate(value))


def read_yaml(path: Path) -> Any:
    """Read YAML. Raises UserError where it isn't YAML, or where there is no such file."""
    import yaml

    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _loader())
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise UserError(f"{path}: nested too deeply") from None
    check_values(content, str(path))
    return content


def yaml_value(text: str) -> Any:
    """What YAML reads in a text, as in a file. Raises ValueError, in one line, where it is none."""
    import yaml

    try:
        return yaml.load(text, _loader())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None


@functools.cache
def _loader() -> Any:
    """YAML's safe loader, which takes the last of two equal keys, 010 for 8 and 1:30 for 90; this refuses them."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_number(self, node: yaml.ScalarNode) -> int | float:
            text = node.value.lstrip("+-")
            if ":" in text or (text[:1] == "0" and text[1:2].isdigit() and "." not in text):
                other = "a number of base 60" if ":" in text else "octal"
                problem = f"YAML reads {node.value} as {other}: write the decimal number, or quotes around text"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            integer = node.tag == "tag:yaml.org,2002:int"
            number: int | float = self.construct_yaml_int(node) if integer else self.construct_yaml_float(node)
            return number

        def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
            node = super().compose_mapping_node(anchor)
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            if twice := sorted({key for key in keys if keys.count(key) > 1}):
                raise yaml.constructor.ConstructorError(None, None, f"{twice[0]} is given twice", node.start_mark)
            return node

    for kind in ("int", "float"):
        Loader.add_constructor(f"tag:yaml.org,2002:{kind}", Loader.construct_number)
    return Loader


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
