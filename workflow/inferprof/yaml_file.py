"""YAML of a user: a config or a model's description, read and held against its schema, or refused in one line."""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import math
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inferprof import documents
from inferprof.errors import UserError, meant, require_file

if TYPE_CHECKING:
    import jsonschema

DEEPEST, MOST_VALUES, LARGEST = 50, 100_000, 2**63
"""What a config or a model's description may hold: aliases make millions of values of a few lines."""
SHOWN = 40
"""Characters of a value that a message shows."""
NOT_TEXT = "YAML reads yes, no, on, off, null, numbers and dates as values: write the key in quotes"


def check_schema(content: Any, schema: str, where: str) -> None:
    """Validate against schemas/{schema}.schema.json.

    Raises UserError with the first violation in one line.
    """
    from jsonschema.exceptions import best_match

    if content is None:
        raise UserError(f"{where} holds nothing; docs/interface.md lists the keys")
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
    """What the schema says of a value, or of what the value is a part of: the nearest that says anything."""
    parts = [schema]
    for step in error.absolute_schema_path:
        parts.append(parts[-1][step])
    said = (part["description"] for part in reversed(parts) if isinstance(part, dict) and "description" in part)
    return next((text for text in said if isinstance(text, str)), None)


JSON_TYPES: Final[Mapping[str, str]] = {
    **{"array": "a list", "object": "a mapping of keys to values", "string": "a string", "boolean": "true or false"},
    **{"integer": "a whole number", "number": "a number", "null": "null"},
}
"""A type in a JSON schema → what it is in YAML."""


def _violation(error: jsonschema.ValidationError) -> str:
    """What a schema does not allow, in YAML's words where it is the type of a value."""
    given = _as_yaml(error.instance)
    if error.validator == "pattern":
        return f"{given} does not match"
    if error.validator in ("oneOf", "anyOf"):
        return f"{given} is none of what may stand here"
    if error.validator != "type":
        return str(error.message)
    wanted = error.validator_value if isinstance(error.validator_value, list) else [str(error.validator_value)]
    write = _meant_value(error.instance, wanted, error.schema)
    return f"{given} is not {' or '.join(JSON_TYPES[name] for name in wanted)}{write and f': write {write}'}"


def _meant_value(value: Any, wanted: list[str], schema: Any) -> str:
    """A scalar as the type that is wanted, in YAML; empty where it is none."""
    import yaml

    if wanted == ["string"] and isinstance(value, bool):
        return "quotes around it; YAML reads yes, no, on and off as true and false"
    if isinstance(value, bool | None) or not isinstance(value, str | int | float | datetime.date):
        return ""
    if wanted == ["array"]:
        return str(yaml.safe_dump([value], default_flow_style=True, allow_unicode=True).strip())
    if wanted == ["string"] and isinstance(value, int) and "examples" in schema:
        return re.sub(r"\d+", str(value), str(schema["examples"][0]), count=1)  # 8 for b8, 12 for 12.0
    if wanted == ["string"]:
        return json.dumps(str(value)) if re.search(schema.get("pattern", ""), str(value)) else ""
    if not {"integer", "number"} & {*wanted} or isinstance(value, datetime.date):
        return ""
    with contextlib.suppress(ValueError, OverflowError):
        number = float(value)
        return str(int(number)) if number == int(number) else repr(number) if "number" in wanted else ""
    return ""


def _as_yaml(value: Any) -> str:
    """A value as YAML has it, where Python has another word for it; else as Python has it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value) if isinstance(value, datetime.date) else repr(value)


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
                raise UserError(f"{where}: {place}: the key {_as_yaml(other[0])} is not a string; {NOT_TEXT}")
            stack += ((entry, (*path, key)) for key, entry in value.items())
        elif isinstance(value, list | tuple):
            stack += ((entry, (*path, str(index))) for index, entry in enumerate(value))


def read_yaml(path: Path) -> Any:
    """Read YAML. Raises UserError where it isn't YAML, or where there is no such file."""
    try:
        content = yaml_value(require_file(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}): save it as UTF-8"
        ) from None
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    check_values(content, str(path))
    return content


def yaml_value(text: str) -> Any:
    """What YAML reads in a text, as in a file. Raises ValueError, in one line, where it is none."""
    import yaml

    try:
        return yaml.load(text, _loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(" ".join(f"{place}{error.context or ''} {error.problem or ''}".split())) from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).replace('in "<unicode string>", ', "at ").split())) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


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

        def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep)
            except (ValueError, LookupError, AttributeError):  # of a date that is none, or behind a tag
                kind = node.tag.rpartition(":")[2]
                problem = f"{str(node.value)[:SHOWN]!r} is no {kind}: write another value, or quotes around text"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

        def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
            node = super().compose_mapping_node(anchor)
            seen: set[str] = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value} is given twice", key.start_mark)
                seen.add(key.value)
            return node

    for kind in ("int", "float"):
        Loader.add_constructor(f"tag:yaml.org,2002:{kind}", Loader.construct_number)
    return Loader
