"""How candidates stand by their rounds, and by how much that may be off."""

from __future__ import annotations

import math

import pytest

from inferprof.best.standing import QUIET, Standing


def test_a_gain_over_a_new_incumbent_is_what_its_own_gain_leaves() -> None:
    standing = Standing("base")
    standing.screen("a", [10.0], [8.0], 0.0)
    standing.screen("b", [10.0], [9.0], 0.0)
    assert [standing.ratio(name) for name in ("a", "b")] == pytest.approx([0.8, 0.9])
    standing.succeed("a", 0.25)
    assert standing.ratio("b") == pytest.approx(0.9 / 0.75)
    standing.screen("c", [7.5, 7.5], [6.0, 6.0], 0.0)
    assert standing.ratio("c") == pytest.approx(0.8)


def test_one_round_is_as_uncertain_as_its_noise_until_pairs_were_repeated() -> None:
    standing = Standing("base")
    standing.screen("a", [10.0], [10.0], 0.02)
    assert standing.spread() is None
    assert standing.promise("a") == pytest.approx(1 - math.exp(-0.04))
    for name in ("b", "c", "d"):
        standing.screen(name, [10.0, 10.0], [10.0, 10.0 * math.exp(0.01)], 0.02)
    spread = 1.4826 * 0.005 * math.sqrt(2)
    assert standing.spread() == pytest.approx(spread)
    assert standing.promise("a") == pytest.approx(1 - math.exp(-2 * spread))


def test_a_slow_process_moves_no_spread_and_none_is_below_what_clocks_tell() -> None:
    standing = Standing("base")
    for name, slow in (("a", 1.0), ("b", 1.0), ("c", 1.3), ("d", 1.0)):
        standing.screen(name, [10.0, 10.0], [9.0, 9.0 * slow], 0.02)
    assert standing.spread() == QUIET


def test_what_is_sure_to_gain_or_not_to_gain_is_not_in_doubt() -> None:
    standing = Standing("base")
    for name, ms in (("winner", 8.0), ("even", 10.0), ("loser", 11.0)):
        standing.screen(name, [10.0], [ms], 0.02)
    assert [standing.in_doubt(name, 0.03) for name in ("winner", "even", "loser")] == [False, True, False]
