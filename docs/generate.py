"""The tables of docs/ that say what the code has, between marks in its pages: what `make docs` runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from studies.reference.document import filled, markdown_table

from inferprof import commands, registry
from inferprof.config import BEST, DEFAULTS, PROTOCOL
from inferprof.diagnosis import calibration
from inferprof.findings import NEEDS, Level
from inferprof.tables.metrics import METRICS
from inferprof.tables.schema import COLUMNS, MEANINGS

DOCS = Path(__file__).resolve().parent
SCHEMAS = Path(registry.__file__).parent / "schemas"
MARK = re.compile(r"<!-- `make docs` writes the table of (\w+) -->")
END = "<!-- the end of that table -->"
OTHERS = {"case": "", "model": ", the model's other cases"}
"""What a check of a scope needs beside its needs."""
SOURCES = {"onnx": "the fp32 graph", "torch": "the torch model", "either": "the torch model, or an ONNX file"}

Rows = Iterable[tuple[Any, ...]]
Table = tuple[tuple[str, ...], Rows]
"""Columns and rows."""


class Flags:
    """What a function of `inferprof.flags` adds to a parser, as rows: the flag, and what it is."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []

    def add_argument(self, name: str, **given: Any) -> None:
        """As ArgumentParser has it."""
        value = "" if given.get("action") == "store_true" else given.get("metavar", _upper(name))
        flag = f"{name} {value}".strip() if name.startswith("-") else value
        self.rows.append((f"`{flag}`{', required' * given.get('required', False)}", given["help"]))

    def add_mutually_exclusive_group(self, **_given: Any) -> Flags:
        """As ArgumentParser has it."""
        return self


def _upper(name: str) -> str:
    return name.lstrip("-").replace("-", "_").upper()


def checks() -> Table:
    """The checks of the diagnosis, level by level."""
    ordered = sorted(registry.checks().values(), key=lambda check: get_args(Level).index(check.level))
    rows = (
        (f"`{each.name}`", each.level, each.title, ", ".join(each.needs) + OTHERS[each.scope], each.by)
        for each in ordered
    )
    return ("Check", "Level", "Title", "Needs", "What changes"), rows


def needs() -> Table:
    """What a check may need."""
    return ("Need", "It is"), ((f"`{need}`", meaning) for need, meaning in NEEDS.items())


def thresholds() -> Table:
    """From when on a check finds something."""
    rows = ((f"`{each.name}`", f"{each.value:g} {each.unit}", each.source) for each in registry.thresholds().values())
    return ("Threshold", "Value", "Why"), rows


def predictions() -> Table:
    """How good the predicted gains were in the reference studies."""
    rows = (
        (
            *(f"`{row['check']}`", row["tries"], row["inside"], f"{row['inside'] / row['tries']:.0%}"),
            "a loss was possible" if row["width"] is None else f"{row['width']:.2f}×",
        )
        for row in calibration.published()
    )
    return ("Check", "Tries", "Inside", "Share", "Bounds"), rows


def options() -> Table:
    """The options of a variant, in the order of the backends."""
    meanings: dict[str, str] = {}
    backends: dict[str, list[str]] = {}
    for backend in registry.backends().values():
        sources = {
            name: f" ([source]({each.source}))" for name, each in registry.runtime_options(backend.name).items()
        }
        for option, described in registry.options_of(backend).items():
            meanings.setdefault(option, described.meaning + sources.get(option, ""))
            backends.setdefault(option, []).append(f"`{backend.name}`")
    rows = ((f"`{option}`", meaning, ", ".join(backends[option])) for option, meaning in meanings.items())
    return ("Option", "Meaning", "Backends"), rows


def quantizers() -> Table:
    """The values of the option `quantize`."""
    return ("Quantizer", "Meaning"), ((f"`{each.name}`", each.title) for each in registry.quantizers().values())


def formats() -> Table:
    """The number formats."""
    rows = (
        (
            *(f"`{each.name}`", each.made_by, SOURCES[each.source]),
            ".".join(map(str, each.needs_compute_capability or ("any",))),
            ", ".join(f"`{option}: {json.dumps(value)}`" for option, value in each.options.items()),
        )
        for each in registry.precisions().values()
    )
    return ("Format", "Made by", "Of", "Tensor cores from", "Options"), rows


def columns() -> Table:
    """The columns of the tidy table."""
    return ("Column", "Type", "Meaning"), ((f"`{name}`", dtype, MEANINGS[name]) for name, dtype in COLUMNS.items())


def metrics() -> Table:
    """The metrics of the tidy table."""
    return ("Metric", "Unit", "Meaning"), ((f"`{each.name}`", each.unit, each.meaning) for each in METRICS.values())


def verbs() -> Table:
    """The verbs of the command line with their flags."""
    rows: list[tuple[str, str, str]] = []
    for verb, (function, add_flags) in commands.VERBS.items():
        flags = Flags()
        add_flags(flags)
        rows += [(f"`{verb}`", "", function.__doc__), *(("", *row) for row in flags.rows)]
    return ("Verb", "Argument", "Meaning"), rows


def config_keys() -> Table:
    """The keys of a study."""
    parts = {"protocol": PROTOCOL, "best": BEST}
    inner = {f"{part}.{name}": value for part, own in parts.items() for name, value in own.items()}
    defaults = {**DEFAULTS, **inner}
    rows = _keys(json.loads((SCHEMAS / "config.schema.json").read_text(encoding="utf-8")))
    return ("Key", "Meaning", "Default"), (
        (f"`{key}`", text, _default(key, need, defaults)) for key, text, need in rows
    )


def model_keys() -> Table:
    """The keys of a model's YAML file."""
    rows = _keys(json.loads((SCHEMAS / "model.schema.json").read_text(encoding="utf-8")))
    return ("Key", "Meaning"), ((f"`{key}`", f"{text}{'; required' * need}") for key, text, need in rows)


def _default(key: str, needed: bool, defaults: Mapping[str, Any]) -> str:
    if key in defaults:
        return f"`{json.dumps(defaults[key])}`"
    return "required" if needed else ""


def _keys(schema: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str, bool]]:
    """Of each key: its path, its description with the values that are allowed, and whether it must be there."""
    for name, content in schema.get("properties", {}).items():
        allowed = ", ".join(f"`{value}`" for value in content.get("enum", ()))
        text = f"{content['description']}: {allowed}" if allowed else content["description"]
        yield f"{prefix}{name}", text, name in schema.get("required", ())
        yield from _keys(content, f"{prefix}{name}.")
        yield from _keys(content.get("items", {}), f"{prefix}{name}[].")


TABLES: Mapping[str, Callable[[], Table]] = {
    make.__name__: make
    for make in (
        *(checks, needs, thresholds, predictions, options, quantizers, formats),
        *(columns, metrics, verbs, config_keys, model_keys),
    )
}


def page(text: str) -> str:
    """A page with each of its tables made anew. Raises KeyError for a mark of a table that there is none of."""
    for mark in MARK.finditer(text):
        head, rows = TABLES[mark.group(1)]()
        escaped = ([str(cell).replace("|", r"\|").replace("<", "&lt;") for cell in row] for row in rows)
        text = filled(text, (mark.group(), END), markdown_table(head, escaped))
    return text


def main() -> None:
    """Write the tables of all pages."""
    for path in sorted(DOCS.glob("*.md")):
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
