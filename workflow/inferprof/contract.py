"""Whether a plug-in is what the dataclass of its kind asks for: Python itself does not check the types of fields."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

CALLED: Final = "Callable["
"""How the annotation of a field begins that is called."""
NO_VALUE: Final = "| None"
"""How it ends where the field may be left out."""


NAME: Final = re.compile(r"[A-Za-z0-9][\w-]{0,99}", re.ASCII)
"""What a plug-in may be called: its name is a part of paths, of patterns and of command lines."""


def broken(plugin: Any) -> str | None:
    """The first field of a plug-in that is not as declared, what it is and what is allowed; None where all are.

    What a function of it gives is seen only where it is called.
    """
    for field in dataclasses.fields(plugin):
        value = getattr(plugin, field.name)
        if field.name == "name" and not (isinstance(value, str) and NAME.fullmatch(value)):
            return f"name is {value!r}; allowed: letters, digits, _ and -, 100 at most"
        if not _fits(value, str(field.type), type(plugin)):
            return f"{field.name} is {value!r}; allowed: {_allowed(str(field.type), type(plugin))}"
    return None


def _fits(value: Any, declared: str, kind: type[Any]) -> bool:
    if declared.startswith(CALLED):
        return (callable(value) and _takes(value, declared)) or (value is None and declared.endswith(NO_VALUE))
    wanted = _evaluated(declared, kind.__module__)
    if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
        return isinstance(value, wanted)
    try:
        msgspec.convert(value, wanted, strict=True)
    except msgspec.ValidationError:
        return False
    except (TypeError, NameError):  # a type that msgspec does not know
        pass
    return True


def _takes(function: Any, declared: str) -> bool:
    """Whether a function can be called with as many arguments as declared; True where Python cannot tell."""
    try:
        inspect.signature(function).bind(*range(_arguments(declared)))
    except TypeError:
        return False
    except ValueError:  # a type written in C
        pass
    return True


@functools.cache
def _arguments(declared: str) -> int:
    """How many arguments `Callable[[A, B], R]` names."""
    names, deep = declared.removeprefix(CALLED + "["), 0
    for count, end in enumerate(names):
        deep += {"[": 1, "]": -1}.get(end, 0)
        if deep < 0:
            return len(ast.parse(f"[{names[:count]}]", mode="eval").body.elts)  # type: ignore[attr-defined]
    raise ValueError(declared)


@functools.cache
def _evaluated(declared: str, module: str) -> Any:
    """The type that an annotation in a module names."""
    return eval(declared, vars(sys.modules[module]))  # an annotation of ours


def _allowed(declared: str, kind: type[Any]) -> str:
    """The values of an annotation, else the annotation itself, which is Python's word for it."""
    if declared.startswith(CALLED):
        return f"a function, {declared}"
    return ", ".join(map(repr, dict.fromkeys(_values(_evaluated(declared, kind.__module__))))) or declared


def _values(wanted: Any) -> Iterator[Any]:
    """What stands in the Literals of a type."""
    if get_origin(wanted) is Literal:
        yield from get_args(wanted)
        return
    for part in get_args(wanted):
        yield from _values(part)
