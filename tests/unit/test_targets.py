"""Options become flags that the command line reads back as they were."""

from __future__ import annotations

import shlex

import pytest

from inferprof import cli, targets
from inferprof.case import OptionValue


@pytest.mark.parametrize(
    "value", ["max", 32, 0.5, True, False, ["b1", "b64"]], ids=["text", "integer", "number", "yes", "no", "list"]
)
def test_an_option_survives_the_command_line(value: OptionValue) -> None:
    words = shlex.split(targets.flags({"option": value}))
    args = cli._parser().parse_args(["quantize", "int8", "x.onnx", "--spec", "m.yaml", "--out", "y.onnx", *words])
    assert dict(args.set) == {"option": value}


def test_no_options_are_no_flags() -> None:
    assert targets.flags({}) == ""
