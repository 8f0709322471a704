"""What all documents share: how they are written, how an outcome is told, and the ranges of numbers.

JSON has neither NaN nor infinity, and a number beyond a float's range is refused where it is read: what has passed
here is finite, and so are products and ratios of what has: no time, size or speed is beyond these ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

# Numbers are of two types, so that whole ones stay whole.
LARGEST = 2**62
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Number = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)] | Annotated[float, Meta(ge=-1e24, le=1e24)]
NotNegative = Annotated[int, Meta(ge=0, le=LARGEST)] | Annotated[float, Meta(ge=0, le=1e24)]
Positive = Annotated[int, Meta(gt=0, le=LARGEST)] | Annotated[float, Meta(ge=1e-15, le=1e24)]
Share = Annotated[int, Meta(ge=0, le=1)] | Annotated[float, Meta(ge=0, le=1)]
Percent = Annotated[int, Meta(ge=0, le=100)] | Annotated[float, Meta(ge=0, le=100)]
Cosine = Annotated[int, Meta(ge=-1, le=1)] | Annotated[float, Meta(ge=-1.001, le=1.001)]
"""Also of a rank correlation; rounding takes both a little beyond 1."""
Nanoseconds = Annotated[int, Meta(ge=1, le=10**18)] | Annotated[float, Meta(ge=1, le=1e18)]
"""What an inference takes: more than nothing, and less than the 30 years from which on it is no measurement."""
Elapsed = Annotated[int, Meta(ge=0, le=10**18)] | Annotated[float, Meta(ge=0, le=1e18)]
"""ns of a part of an inference, which may take no time at all."""
Text = Annotated[str, Meta(min_length=1)]


class Document(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A JSON file of the results folder, or a part of one. What else is in the file is free."""


class Measured(Document):
    """A part that holds its NEEDS, or says in `not_measured` why it does not."""

    NEEDS: ClassVar[tuple[str, ...]] = ()

    not_measured: str | None = None

    def __post_init__(self) -> None:
        if self.not_measured is None:
            require(self, self.NEEDS, "and no `not_measured` says why")


SELF_CHECK = "self-check"
"""The stage of a record that was measured and judged itself; its reason says so by itself."""


class Outcome(Document):
    """A document about a case or a graph: ok with all its NEEDS, or failed with a reason and whatever was known.

    Those of SAID must be there too, but may be null: they default to UNSET, and are None where a document failed.
    """

    NEEDS: ClassVar[tuple[str, ...]] = ()
    SAID: ClassVar[tuple[str, ...]] = ()

    status: Literal["ok", "failed"] = "ok"
    reason: str | None = None
    stage: str | None = None
    """Where it failed; older files do not say."""
    notes: list[str] = []
    """What else went wrong, such as an exception while closing."""

    def __post_init__(self) -> None:
        if self.status == "ok":
            require(self, self.NEEDS, "though its status is ok")
        elif not (self.reason or "").strip():
            raise ValueError("`failed` without a `reason`")
        for name in self.SAID:
            if getattr(self, name) is msgspec.UNSET:
                if self.status == "ok":
                    raise ValueError(f"lacks `{name}`, which may be null, though its status is ok")
                setattr(self, name, None)

    @property
    def failure(self) -> str | None:
        """`build: out of memory`: why it failed and where; None where it did not."""
        if self.status == "ok":
            return None
        reason = str(self.reason)
        return f"{self.stage}: {reason}" if self.stage and self.stage != SELF_CHECK else reason


class OfCase(Document):
    """The five names of a case."""

    model: str
    precision: str
    backend: str
    variant: str
    shape: str

    @property
    def path(self) -> str:
        """The case as the middle of a path."""
        return f"{self.model}/{self.precision}/{self.backend}/{self.variant}/{self.shape}"


class Unknown(Document):
    """A fact that could not be found out, and why."""

    value: bool | msgspec.UnsetType | None = msgspec.UNSET
    reason: str | None = None


def require(part: Document, names: tuple[str, ...], though: str) -> None:
    """Raise ValueError where one of the fields is not set."""
    if lacking := [name for name in names if getattr(part, name) is None]:
        raise ValueError(f"lacks {', '.join(f'`{name}`' for name in lacking)}, {though}")


def check_divided(options: Mapping[str, Any]) -> None:
    """Raise ValueError where the options of a case that ran say `parallel` and not how it was divided."""
    given = options.get("parallel", {"": 1})
    ranks = list(given.values()) if isinstance(given, dict) else []
    if [type(number) for number in ranks] != [int] or ranks[0] < 1:
        raise ValueError(f"options: parallel: {given!r} is no way to divide a case with a number of ranks")
