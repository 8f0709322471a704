"""How candidates stand by their rounds, and by how much that may be off."""

from __future__ import annotations

import math

import pytest

from inferprof.best.account import QUIET, SPREAD, Standing


def test_a_gain_over_a_new_incumbent_is_what_its_own_gain_leaves() -> None:
    standing = Standing("base")
    standing.screen("a", [10.0], [8.0])
    standing.screen("b", [10.0], [9.0])
    assert [standing.ratio(name) for name in ("a", "b")] == pytest.approx([0.8, 0.9])
    standing.succeed("a", 0.25)
    assert standing.ratio("b") == pytest.approx(0.9 / 0.75)
    standing.screen("c", [7.5, 7.5], [6.0, 6.0])
    assert standing.ratio("c") == pytest.approx(0.8)


def test_few_repeated_rounds_are_as_uncertain_as_usual_and_many_as_they_differ() -> None:
    standing = Standing("base")
    standing.screen("a", [10.0, 10.0, 10.0], [10.0])
    assert standing.spread() == SPREAD
    assert standing.promise("a") == pytest.approx(1 - math.exp(-2 * SPREAD * math.sqrt(1 / 3 + 1)))
    for name in ("b", "c", "d", "e"):
        standing.screen(name, [10.0, 10.0, 10.0], [10.0, 10.0 * math.exp(0.1)])
    spread = 1.4826 * 0.05 * math.sqrt(2)
    assert standing.spread() == pytest.approx(spread)
    assert standing.promise("b") == pytest.approx(1 - math.exp(0.05 - 2 * spread * math.sqrt(1 / 3 + 1 / 2)))


def test_rounds_that_differ_widely_are_believed_although_they_are_few() -> None:
    standing = Standing("base")
    standing.screen("a", [10.0, 12.0, 14.0], [7.0])
    assert standing.spread() > 0.1
    assert standing.sure("a") < 0.2 < standing.promise("a")


def test_a_slow_process_moves_no_spread_and_none_is_below_what_clocks_tell() -> None:
    standing = Standing("base")
    for name, slow in (("a", 1.0), ("b", 1.0), ("c", 1.3), ("d", 1.0)):
        standing.screen(name, [10.0, 10.0], [9.0, 9.0 * slow])
    assert standing.spread() == QUIET


def test_another_incumbent_begins_with_its_own_rounds() -> None:
    standing = Standing("base")
    for name in ("a", "b", "c"):
        standing.screen(name, [10.0, 13.0], [9.0, 12.0])
    standing.heard("a", "duel", [5.0, 5.0, 5.0, 5.0, 5.0, 5.0])
    standing.succeed("a", 0.5)
    assert standing.spread() == QUIET
