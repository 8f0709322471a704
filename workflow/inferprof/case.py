"""The words of a study: shape, variant with its options, case, and the stages of an inference.

A case is one combination that is measured by itself.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, fields, replace
from pathlib import PurePosixPath
from typing import Any, Final, Literal, get_args

from inferprof.errors import UserError

BATCH = "b"
TOKENS, CONTEXT = "p", "c"
"""Of a model with a KV cache: tokens that an inference reads (a prompt), and those that the cache holds before."""
REFERENCE = "fp32"
"""The number format that the others are made from and compared with."""
THRESHOLD = 0.01
"""Relative differences below this are of no interest: two cases that differ by less are the same."""
EXCLUDED = "excluded by the config"
"""How the reason of a case begins that no machine refuses, but an entry of `exclude:`."""
LONGEST_SHOWN = 60
"""Characters of a name that is refused."""
Stage = Literal["stage_inputs", "h2d", "bind", "execute", "d2h", "extract"]
STAGES: tuple[Stage, ...] = get_args(Stage)
"""The stages of end_to_end, in the order in which they happen."""
OptionValue = str | int | float | bool | list[str] | dict[str, int]
"""What an option of a variant or a precision may be in the config."""

_MEANS_MORE = re.compile(
    r"[/\\*?\[\x00-\x1f\x7f]|\A\.|\.\Z|\A(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|\Z)", re.IGNORECASE
)
"""Separators, patterns, control characters, hidden and parent folders, and what Windows takes for a device."""
LONGEST_NAME = 200
"""In bytes: with a suffix it is still a file's name on every system."""
_SHAPE = re.compile(r"b[1-9][0-9]{0,9}(?:_(?:[a-z]+[1-9][0-9]{0,9})+)?")
_SIZE = re.compile(r"([a-z]+)([0-9]+)")
_LONGEST = 40
"""Characters of a label that a refusal quotes."""


def is_plain(name: str) -> bool:
    """Whether a name can stand in a path and in a pattern of paths, and means nothing but itself there."""
    if not name or _MEANS_MORE.search(name):
        return False
    try:
        return len(name.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:  # half letters
        return False


def require_plain(kind: str, *names: str) -> None:
    """Raise UserError for a name that is not plain: out of a file, it could lead out of the results folder."""
    for name in names:
        if not is_plain(name):
            shown = name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}…"
            why = f"1 to {LONGEST_NAME} bytes, without / \\ * ? [, control characters, and dots at its ends"
            raise UserError(f"{kind} {shown!r} can't be a part of a path: a name has {why}")


@dataclass(frozen=True)
class Shape:
    """The sizes of a model's symbolic dimensions: `b8`, `b8_s128`, `b1_h512w512`.

    `sizes` maps a symbol (`b` is the batch) to its size, in the order of the label.
    """

    sizes: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, label: str) -> Shape:
        """Read a label. Raises UserError where it is not one (also for a batch of 0)."""
        if not _SHAPE.fullmatch(label):
            raise UserError(
                f"shape {label[:_LONGEST]!r} is not a shape; write b<batch> with a batch of at least 1, "
                "then the other symbols behind _, as in b8, b8_s128, b1_h512w512; no size above 10 digits"
            )
        sizes = tuple((symbol, int(size)) for symbol, size in _SIZE.findall(label))
        symbols = [symbol for symbol, _ in sizes]
        if len(set(symbols)) != len(symbols):
            raise UserError(f"shape {label!r} gives a symbol twice")
        return cls(sizes)

    @property
    def batch(self) -> int:
        """The batch size."""
        return self.as_dict()[BATCH]

    @property
    def label(self) -> str:
        """The shape as it stands in paths and in the config."""
        (first, batch), *rest = self.sizes
        tail = "".join(f"{symbol}{size}" for symbol, size in rest)
        return f"{first}{batch}_{tail}" if tail else f"{first}{batch}"

    def within(self, other: Shape) -> bool:
        """Whether another shape has all of these sizes, and perhaps more: b8 is within b8_s128."""
        return self.as_dict().items() <= other.as_dict().items()

    def as_dict(self) -> dict[str, int]:
        """Symbol → size."""
        return dict(self.sizes)

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class Variant:
    """A named set of options: CUDA graph, TF32, compile mode, placement, builder options."""

    name: str = "default"
    options: Mapping[str, OptionValue] = field(default_factory=dict)

    def flag(self, option: str) -> bool:
        """Whether a yes/no option is on; off where it isn't given. Raises UserError for another value."""
        value = self.options.get(option, False)
        if not isinstance(value, bool):
            raise UserError(f"variant {self.name}: {option}: {value!r} is neither true nor false")
        return value

    def whole(self, option: str) -> int:
        """The value of an option that is given and a whole number. Raises UserError for another value."""
        value = self.options[option]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UserError(f"variant {self.name}: {option}: {value!r} is not a whole number of 0 or more")
        return value

    def text(self, option: str, default: str) -> str:
        """The value of a textual option."""
        return str(self.options.get(option, default))

    @classmethod
    def spelled(cls, options: Mapping[str, OptionValue]) -> Variant:
        """The variant that no config names, by its options: `spinning=false+threads=2`. ValueError for a list."""
        parts = [
            f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in options.items()
        ]
        variant = cls(AND.join(sorted(parts)), dict(options))
        if not SPELLED.fullmatch(variant.name):
            raise ValueError(f"{variant.name}: options with such values have no name")
        return variant

    @classmethod
    def read(cls, name: str) -> Variant:
        """The inverse of `spelled`. Raises UserError for another name."""
        if not SPELLED.fullmatch(name):
            raise UserError(f"variant {name!r} is neither one of the config nor options such as threads=2")
        return cls(
            name, {option: _value(text) for option, _, text in (part.partition("=") for part in name.split(AND))}
        )


def _value(text: str) -> OptionValue:
    """A value as `spelled` writes it."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdecimal() else text


AND: Final = "+"
SPELLED: Final = re.compile(r"[a-z]\w*=[\w.-]+(\+[a-z]\w*=[\w.-]+)*", re.ASCII)
"""Options as the name of a variant: Variant.spelled."""
QUANTIZE: Final = "quantize"
"""The option of a variant that names the Quantizer of a torch model's weights."""
HOST_CAST: Final = "host_cast"
"""The option of a variant that says how the host casts what the caller has as float16."""
RUN_OPTIONS: Final = frozenset({"cuda_graph", "placement", "threads", HOST_CAST})
"""Options that only a run needs: variants that differ in nothing else share an engine."""
PARALLEL: Final = "parallel"
"""The option of a variant that says how a case is divided over ranks; of a model: the function that divides it."""
OF_DUELS: Final = 1000
"""Rounds of this number and above are those of a search, whose duels have as many each: inferprof.best."""
LAST_DUELS: Final = 1_000_000_000
"""From this number on they are those of the duels that confirm what was found."""
TUNING = "tuning"
TUNED_ANEW, TUNED_BY_LIBRARY = "fresh", "library"
"""The option of a variant that says where the configurations of autotuned kernels come from, and its values that are
no names: all are tried; or what the library carries, else tried. Otherwise VARIANT or VARIANT/SHAPE, whose record has
them."""


@dataclass(frozen=True, order=True)
class Case:
    """One combination of a study. All five are names; `shape` is a label of Shape.

    Raises UserError for a name that is not plain: a case is a path, and a part of patterns of paths.
    """

    model: str
    precision: str
    backend: str
    variant: str
    shape: str

    def __post_init__(self) -> None:
        for name in fields(self):
            require_plain(name.name, getattr(self, name.name))

    @property
    def path(self) -> PurePosixPath:
        """The case as the middle of a path: model/precision/backend/variant/shape."""
        return PurePosixPath(self.model, self.precision, self.backend, self.variant, self.shape)

    def tuned_by(self, variant: Variant, *, profiled: bool = False) -> Case | None:
        """The case whose record says which configurations of kernels this one takes over; None: it has its own.

        A profiled run takes over those of the bare one: chosen under a profiler, which slows each launch down, they
        may be others.
        """
        given = variant.text(TUNING, "")
        if given in ("", TUNED_ANEW, TUNED_BY_LIBRARY):
            return self if given and profiled else None
        name, _, shape = given.partition("/")
        return replace(self, variant=name, shape=shape or self.shape)

    @classmethod
    def from_path(cls, path: PurePosixPath | str) -> Case:
        """The inverse of `path`; takes the last five parts, with or without a suffix on the last."""
        model, precision, backend, variant, shape = PurePosixPath(path).parts[-5:]
        return cls(model, precision, backend, variant, shape.split(".")[0])

    @classmethod
    def of_capture(cls, path: PurePosixPath | str) -> Case | None:
        """The case of a file at …/capture/{profiler}/{case}.*; None for any other file: its case is not known."""
        return cls.from_path(path) if PurePosixPath(path).parts[-7:-6] == ("capture",) else None

    @classmethod
    def from_wildcards(cls, wildcards: Any) -> Case:
        """A case of anything with the five names as attributes, such as the wildcards of a rule."""
        return cls(wildcards.model, wildcards.precision, wildcards.backend, wildcards.variant, wildcards.shape)

    def __str__(self) -> str:
        return str(self.path)


CASE_KEYS: Final = tuple(key.name for key in fields(Case))


def outcomes_csv(machine: str, outcomes: Iterable[tuple[Case, str, str]]) -> str:
    """cases.csv of a study: a row for each case with its outcome, `run` or `refused`, and the reason."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["machine", *CASE_KEYS, "outcome", "reason"])
    writer.writerows([machine, *astuple(case), outcome, reason] for case, outcome, reason in outcomes)
    return text.getvalue()
