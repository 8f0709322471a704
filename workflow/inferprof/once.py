"""What follows from an object that does not change is worked out once and kept with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


class Derives:
    """As functools.cached_property, for functions that the class does not know: those of sections and checks."""

    def once(self, derive: Callable[..., Result], *arguments: Any) -> Result:
        """`derive(self, *arguments)`, called at the first time that it is asked for; the arguments are hashable."""
        kept: dict[Any, Any] = self.__dict__.setdefault("_kept", {})
        key = (derive, *arguments)
        if key not in kept:
            kept[key] = derive(self, *arguments)
        result: Result = kept[key]
        return result
