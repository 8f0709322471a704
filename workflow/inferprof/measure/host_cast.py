"""float16 arrays of the caller that the host casts to the model's float32, anew each time that they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inferprof.case import HOST_CAST, Variant
from inferprof.errors import UserError
from inferprof.plugins import Feeds

Array = np.ndarray[Any, Any]


def _elementwise(half: Array) -> Array:
    """One conversion per element: what a loop around a scalar costs."""
    return np.array([float(value) for value in half.flat], np.float32).reshape(half.shape)


def _vectorised(half: Array) -> Array:
    """All elements in one call, which uses the CPU's own instructions for it."""
    return half.astype(np.float32)


CASTS: Mapping[str, Callable[[Array], Array]] = {"elementwise": _elementwise, "vectorised": _vectorised}


@dataclass(frozen=True)
class _Cast(Mapping[str, Array]):
    """The feeds as they are read: the caller's float16 arrays, cast; all others as they are."""

    given: Feeds
    cast: Callable[[Array], Array]

    def __getitem__(self, name: str) -> Array:
        array = self.given[name]
        return self.cast(array) if array.dtype == np.float16 else array

    def __iter__(self) -> Iterator[str]:
        return iter(self.given)

    def __len__(self) -> int:
        return len(self.given)


def given_as_half(feeds: Feeds, variant: Variant) -> Feeds:
    """The feeds of a caller who has the float32 inputs as float16; the same feeds where the variant casts nothing.

    A lane reads its feeds in the stage `stage_inputs`, so that is where the cast's time goes. Raises UserError for an
    unknown kind of cast, and where no input is float32.
    """
    if HOST_CAST not in variant.options:
        return feeds
    kind = variant.text(HOST_CAST, "")
    if kind not in CASTS:
        raise UserError(f"host_cast {kind!r} is unknown; known: {', '.join(CASTS)}")
    if all(array.dtype != np.float32 for array in feeds.values()):
        raise UserError("host_cast is about float32 inputs, and this model has none; leave the variant out")
    half = {name: a.astype(np.float16) if a.dtype == np.float32 else a for name, a in feeds.items()}
    return _Cast(half, CASTS[kind])
