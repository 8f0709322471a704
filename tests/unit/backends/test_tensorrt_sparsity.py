"""What TensorRT's builder says of sparse weights, in its words of 8.5 and of 10."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.unit.facts import facts

from inferprof.backends.tensorrt_build import sparsity_of
from inferprof.backends.tensorrt_runtime import message_log


class ILogger:
    """A stand-in for TensorRT's."""

    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)


def test_the_log_keeps_what_is_said_of_sparsity_at_any_severity() -> None:
    log = message_log(SimpleNamespace(ILogger=ILogger))
    log.log(ILogger.INFO, "(Sparsity) Found 39 layer(s)\n eligible to use sparse tactics: a, b")
    log.log(ILogger.VERBOSE, "(Sparsity) Chose 0 layer(s) using sparse tactics")
    log.log(ILogger.INFO, "Loaded engine size: 507 MiB")
    assert [facts(text, "eligible") for text in log.sparsity] == [["Found", "39", "eligible"], ["Chose", "0"]]
    assert (log.errors, log.warnings) == ([], [])


@pytest.mark.parametrize(
    ("messages", "counts"),
    [
        (
            ["(Sparsity) Found 39 layer(s) eligible to use sparse tactics", "(Sparsity) Chose 2 layer(s) using"],
            (39, 2),
        ),
        (
            [
                "(Sparsity) Layers eligible for sparse math: MatMul_401, Conv_619 + Relu_620",
                "(Sparsity) TRT inference plan picked sparse implementation for layers: Conv_619 + Relu_620",
            ],
            (2, 1),
        ),
        (
            [
                "(Sparsity) Layers eligible for sparse math:",
                "(Sparsity) TRT inference plan picked sparse implementation for layers:",
            ],
            (0, 0),
        ),
        (["(Sparsity) Found 4 layer(s) eligible", "(Sparsity) Found 3 layer(s) eligible"], (3, None)),
        ([], (None, None)),
    ],
)
def test_eligible_and_picked_are_the_last_that_it_said(
    messages: list[str], counts: tuple[int | None, int | None]
) -> None:
    assert sparsity_of(messages) == dict(zip(("eligible", "picked"), counts, strict=True))
