"""What follows from an object that does not change is worked out once and kept with it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")
Own = TypeVar("Own", bound="Derives")
"""typing.Self, which Python 3.10 has not."""


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

    def apart(self: Own) -> Own:
        """The same with frames of its own, for code out of a user's file, which may change them."""
        import pandas as pd

        def own(values: dict[Any, Any]) -> dict[Any, Any]:
            return {k: v.copy(deep=False) if isinstance(v, pd.DataFrame) else v for k, v in values.items()}

        other = copy.copy(self)
        vars(other).update(own(vars(self)), _kept=own(vars(self).get("_kept", {})))
        return other
