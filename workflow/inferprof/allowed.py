"""What an option may be: declared where the option is, and checked where a config or a command line gives one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from inferprof.errors import UserError, unknown


@dataclass(frozen=True)
class Allowed:
    """The values that an option may have, and the words for them: `true or false`, `a whole number of 0 to 5`."""

    fits: Callable[[Any], bool]
    words: str


@dataclass(frozen=True)
class Option:
    """An option of a variant: what it means, for the documentation, and what it may be."""

    meaning: str
    allowed: Allowed


def check(of: str, given: Mapping[str, Any], allowed: Mapping[str, Allowed]) -> None:
    """Raise UserError for options that are none of these, and for the first value that its option cannot have."""
    if foreign := sorted(given.keys() - allowed.keys()):
        raise unknown(f"options of {of}:", foreign, allowed)
    for name, value in given.items():
        if not allowed[name].fits(value):
            raise UserError(f"{of}: {name}: {value!r} is not {allowed[name].words}")


def one_of(*values: str | int) -> Allowed:
    """One of these texts or numbers; 1 is not true."""
    return Allowed(
        lambda given: any(type(given) is type(value) and given == value for value in values),
        f"one of {', '.join(map(_written, values))}",
    )


def whole(least: int, most: int | None = None) -> Allowed:
    """A whole number in these bounds."""
    bounds = f"of {least} or more" if most is None else f"of {least} to {most}"
    return Allowed(
        lambda given: type(given) is int and least <= given and (most is None or given <= most),
        f"a whole number {bounds}",
    )


def _written(value: str | int) -> str:
    """As YAML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


YES_NO: Final = Allowed(lambda given: isinstance(given, bool), "true or false")
ANY: Final = Allowed(lambda given: True, "a value")
TEXT: Final = Allowed(lambda given: isinstance(given, str) and bool(given), "text")
