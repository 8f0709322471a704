"""The JSON schemas that are published: generated from the types, so that both say the same.

`python -m inferprof.documents.published` writes them anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from inferprof.documents import TYPES, Bundle
from inferprof.documents.base import Document, Measured, Outcome

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DEEPEST, WIDTH = 3, 80
TITLE = "The JSON files of a results folder, by kind: what is read of them. What else is in them is free"


def schemas() -> Mapping[str, dict[str, Any]]:
    """File name → its content."""
    results = {kind: content for kind, content in TYPES.items() if content is not Bundle}
    kinds, parts = msgspec.json.schema_components(results.values(), ref_template="#/$defs/{name}")
    named = dict(zip(results, kinds, strict=True))
    by_name = {kind.__name__: kind for kind in _subclasses(Document)}
    for name, part in parts.items():
        part.update(_conditions(by_name[name]))
    bundle = {"$schema": DIALECT, "title": "The manifest of a bundle (bundle.json)", **msgspec.json.schema(Bundle)}
    return {
        "results.schema.json": {"$schema": DIALECT, "title": TITLE, "$defs": {**named, **parts}},
        "bundle.schema.json": bundle,
    }


def text(content: Mapping[str, Any]) -> str:
    """A schema as it stands in its file: a line for each field of each part."""
    return _indented(content, "") + "\n"


def _indented(value: Any, indent: str) -> str:
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict) or len(indent) > DEEPEST or len(indent + line) < WIDTH:
        return line
    entries = (f"{indent} {json.dumps(key)}: {_indented(entry, f'{indent} ')}" for key, entry in value.items())
    return "{\n" + ",\n".join(entries) + f"\n{indent}}}"


def _conditions(kind: type[Document]) -> dict[str, Any]:
    """What a document or part must have, which depends on its outcome."""
    needs = [
        field.encode_name
        for field in msgspec.structs.fields(kind)
        if field.name in (*getattr(kind, "NEEDS", ()), *getattr(kind, "SAID", ()))
    ]
    if issubclass(kind, Outcome):
        failed = {"required": ["status"], "properties": {"status": {"const": "failed"}}}
        return {"if": failed, "then": {"required": ["reason"]}, **({"else": {"required": needs}} if needs else {})}
    if issubclass(kind, Measured):
        return {"if": {"required": ["not_measured"]}, "else": {"required": needs}}
    return {}


def _subclasses(kind: type[Document]) -> Iterator[type[Document]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


if __name__ == "__main__":
    for name, content in schemas().items():
        with resources.as_file(resources.files("inferprof") / "schemas" / name) as path:
            Path(path).write_text(text(content), encoding="utf-8")
