"""The contract of an option that a runtime is handed as it is: a plug-in, as those of `plugins`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferprof.allowed import Option, check, one_of, whole
from inferprof.case import OptionValue, Variant
from inferprof.model.model_spec import ModelSpec

if TYPE_CHECKING:
    from inferprof.machine.hardware import Machine


@dataclass(frozen=True)
class RuntimeOption:
    """An option of a variant that hands a documented setting on to the runtimes of some backends."""

    name: str
    meaning: str
    backends: frozenset[str]
    key: str
    """What the runtime calls it."""
    values: Mapping[Any, Any]
    """What it may be → what the runtime is given; empty: any whole number. The first is the runtime's default."""
    source: str
    """Where the runtime documents it."""
    tries: tuple[OptionValue, ...] = ()
    """Values that a search tries."""
    tried_on: frozenset[str] | None = None
    """The backends where it does; None: all of them."""
    refuses: Callable[[ModelSpec, Machine], str | None] = lambda spec, machine: None
    """Why it says nothing of a model, or not on a machine."""
    operators: frozenset[str] = frozenset()
    """Of ONNX, of which a graph has one where the option can change anything; none: it can in any graph."""

    @property
    def option(self) -> Option:
        """What it means, and what it may be."""
        return Option(self.meaning, one_of(*self.values) if self.values else whole(0))

    def given(self, variant: Variant) -> Any:
        """What the runtime is given; None where the variant says nothing. Raises UserError for another value."""
        value: Any = variant.options.get(self.name)
        if value is None:
            return None
        check(f"variant {variant.name}", {self.name: value}, {self.name: self.option.allowed})
        return self.values[value] if self.values else value
