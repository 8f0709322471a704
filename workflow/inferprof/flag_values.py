"""What the values of flags are read as; each raises argparse.ArgumentTypeError, which says how to write one."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Callable

from inferprof.case import Case, OptionValue
from inferprof.errors import UserError


def option(text: str) -> tuple[str, OptionValue]:
    """`name=value` with a YAML value."""
    from inferprof.yaml_file import yaml_value

    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value")
    try:
        return name, yaml_value(value)
    except ValueError as error:
        problem = f"{value!r} is no YAML value ({error}); quote it, or close its brackets"
        raise argparse.ArgumentTypeError(problem) from None


def name(text: str) -> str:
    """A part of a path below the results folder: it leads nowhere else."""
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name of letters, digits, _, - and dots inside")
    return text


def study(text: str) -> str:
    """A study's folder: its name, or of one of several machines STUDY/MACHINE."""
    return "/".join(map(name, text.split("/")))


def baseline(text: str) -> str:
    """`precision/backend/variant`."""
    if text.count("/") != 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not PRECISION/BACKEND/VARIANT")
    return text


def case(text: str) -> Case:
    """A case as its path."""
    if text.count("/") != len(dataclasses.fields(Case)) - 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not MODEL/PRECISION/BACKEND/VARIANT/SHAPE")
    try:
        return Case.from_path(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def capability(text: str) -> tuple[int, int]:
    """A compute capability: `12.0`."""
    match = re.fullmatch(r"(\d+)\.(\d)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a compute capability; write it as 12.0")
    return int(match[1]), int(match[2])


def size(text: str) -> int:
    """Bytes; K, M and G are powers of 1000."""
    match = re.fullmatch(r"([1-9]\d*)([KMG]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write it as 5M")
    return int(match[1]) * {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}[match[2]]


def whole(least: int) -> Callable[[str], int]:
    """The reader of a whole number of at least `least`."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return read


def above_0(most: float = 1e9) -> Callable[[str], float]:
    """The reader of a number above 0."""

    def read(text: str) -> float:
        if not re.fullmatch(r"([0-9]+[.]?[0-9]*|[.][0-9]+)(e[+-]?[0-9]+)?", text) or not 0 < float(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and up to {most:g}")
        return float(text)

    return read
