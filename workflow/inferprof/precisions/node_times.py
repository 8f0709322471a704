"""How long the nodes of a model took in a format, by what watched it on a machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inferprof import registry
from inferprof.errors import UserError
from inferprof.sensitivity.switches import Unit
from inferprof.tables.nodes.node_roofline import FUSED
from inferprof.tables.records import rows_of

if TYPE_CHECKING:
    import pandas as pd


def of_formats(machine: Path, model: str, formats: Iterable[str]) -> dict[str, dict[str, float]]:
    """Format → node → seconds of an inference, of the formats that a table in a machine's folder of results is of.

    Raises UserError where there is no such folder, or it has no table of the model's nodes.
    """
    if not machine.is_dir():
        raise UserError(f"option times: {str(machine)!r} is no folder; give one as results/MACHINE, or leave it out")
    times = {name: seconds for name in formats if (seconds := _of_format(machine / "table", model, name))}
    if not times:
        tools = ", ".join((*registry.joining("node"), *registry.sessions()))
        raise UserError(
            f"option times: {machine} has no table of the nodes of {model}; capture it with one of {tools}"
        )
    return times


def _of_format(tables: Path, model: str, name: str) -> dict[str, float]:
    """By the first tool that watched it, those that tell kernels by node before those that tell the host's time."""
    from inferprof.tables import schema

    for tool in dict.fromkeys((*registry.joining("node"), *registry.sessions())):
        for path in sorted(tables.glob(f"{tool}/{model}/{name}/*/*/*.parquet")):
            if schema.reason_in(frame := schema.read_table(path)) is None:
                return _seconds(frame, tool)
    return {}


def _seconds(frame: pd.DataFrame, tool: str) -> dict[str, float]:
    from inferprof.tables.nodes import attribution, providers

    join = registry.profilers()[tool].join
    if join is None:
        rows = [(row["name"], row["duration"]) for row in rows_of(providers.per_run(frame))]
    else:
        owners = attribution.by_owner(join.attributed(frame), "op").dropna(subset=["owner"])
        rows = [(row["owner"], row["duration_ns"] / join.inferences(frame)) for row in rows_of(owners)]
    seconds: dict[str, float] = {}
    for node, duration in rows:
        name = FUSED.sub("", str(node))
        seconds[name] = seconds.get(name, 0.0) + duration / 1e9
    return seconds


def of_units(
    measured: Mapping[str, Mapping[str, float]], units: Mapping[str, Sequence[Unit]], plain: str
) -> dict[tuple[str, str], float]:
    """(unit, format) → seconds, where every format of the unit was measured, the plain one among them.

    To a unit in a format count its quantizers; one that several units read from counts in parts.
    """
    formats: dict[str, dict[str, Unit]] = {}
    for name, of_format in units.items():
        for unit in of_format:
            formats.setdefault(unit.name, {})[name] = unit
    readers = {name: _readers(of_format) for name, of_format in units.items()}
    times: dict[tuple[str, str], float] = {}
    for unit_name, by_format in formats.items():
        needed = {plain, *by_format}
        if not needed <= measured.keys() or any(unit_name not in measured[name] for name in needed):
            continue
        first = next(iter(by_format.values()))
        times[unit_name, plain] = sum(measured[plain].get(node, 0.0) for node in first.nodes)
        for name, unit in by_format.items():
            own = sum(measured[name].get(node, 0.0) for node in unit.nodes)
            chains = set(_quantizers(unit))
            shared = sum(measured[name].get(node, 0.0) / len(readers[name][node]) for node in chains)
            times[unit_name, name] = own + shared
    return times


def _readers(units: Sequence[Unit]) -> dict[str, set[str]]:
    """Quantizer or dequantizer → the units that read what it gives."""
    readers: dict[str, set[str]] = {}
    for unit in units:
        for node in _quantizers(unit):
            readers.setdefault(node, set()).add(unit.name)
    return readers


def _quantizers(unit: Unit) -> Iterator[str]:
    """The names of the nodes that put a unit's operands into its format and back."""
    return (node.name or node.output[0] for edge in unit.edges for node in edge.chain)
