"""The contract of an option that a runtime is handed as it is: a plug-in, as those of `plugins`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferprof.case import OptionValue, Variant
from inferprof.errors import unknown
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

    def given(self, variant: Variant) -> Any:
        """What the runtime is given; None where the variant says nothing. Raises UserError for another value."""
        value: Any = variant.options.get(self.name)
        if value is None or not self.values:
            return value if value is None else variant.whole(self.name)
        if isinstance(value, list | dict) or value not in self.values:
            raise unknown(f"values of {self.name} in variant {variant.name}:", [str(value)], map(str, self.values))
        return self.values[value]
