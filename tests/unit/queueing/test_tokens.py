"""Prompts and answers step by step, on schedules that can be followed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from inferprof.queueing import tokens
from inferprof.queueing.policy import Curve, Policy, schedule
from inferprof.queueing.tokens import Lengths

CURVE = Curve.of({1: [10.0], 2: [12.0], 10: [28.0], 20: [48.0]})
"""8 + 2 for each token."""


def lengths(*pairs: tuple[int, int]) -> Lengths:
    prompts, answers = np.array(pairs).T
    return Lengths(prompts, answers)


def test_a_static_batch_pads_its_prompts_and_ends_with_its_longest_answer() -> None:
    answered = tokens.static(CURVE, Policy(2), np.array([0.0, 0.0, 1.0]), lengths((5, 2), (10, 4), (10, 3)))
    # 20 tokens at once, then three steps of two; then the third by itself: 10 tokens, two steps of one.
    assert answered.first.tolist() == [48.0, 48.0, 84.0 + 28.0]
    assert answered.served.done.tolist() == [84.0, 84.0, 132.0]
    assert answered.ttft.tolist() == [48.0, 48.0, 111.0]
    assert answered.tpot.tolist() == [36.0, 12.0, 10.0]
    assert (answered.steps, answered.served.formed) == (7, {1: 1, 2: 1})


def test_a_request_joins_and_leaves_at_each_step_of_continuous_batching() -> None:
    answered = tokens.continuous(CURVE, 4, 0, np.array([0.0, 30.0]), lengths((10, 4), (9, 2)))
    # 0 to 28: a prompt. To 38: a step of one. To 66: one decodes beside the nine of the other's prompt. Then both.
    assert answered.first.tolist() == [28.0, 66.0]
    assert answered.served.started.tolist() == [0.0, 38.0]
    assert answered.served.done.tolist() == [78.0, 78.0]
    assert answered.steps == 4


def test_a_budget_spreads_a_prompt_over_steps_that_go_on_decoding() -> None:
    answered = tokens.continuous(CURVE, 4, 10, np.array([0.0, 1.0]), lengths((10, 4), (15, 2)))
    # 0 to 28, then steps of ten tokens: one decodes beside nine of the other's prompt, and then six are left.
    assert answered.first.tolist() == [28.0, 28.0 + 28.0 + 8.0 + 14.0]
    assert answered.served.done.tolist()[0] == answered.first[1] + 12.0


def test_no_more_requests_than_there_are_rows_are_begun_with() -> None:
    answered = tokens.continuous(CURVE, 1, 0, np.zeros(2), lengths((10, 2), (10, 2)))
    assert answered.served.started.tolist() == [0.0, 38.0]
    assert answered.served.done.tolist() == [38.0, 76.0]


def test_a_request_that_comes_while_nobody_works_is_begun_with_at_once() -> None:
    answered = tokens.continuous(CURVE, 4, 0, np.array([100.0]), lengths((10, 2)))
    assert answered.ttft.tolist() == [28.0]
    assert answered.served.utilization == pytest.approx(38.0 / 138.0)


def test_lengths_are_within_what_was_asked_for_and_the_same_by_seed() -> None:
    drawn = Lengths.drawn((4, 8), (2, 3), 2000, seed=1)
    assert set(drawn.prompts) == {4, 5, 6, 7, 8} and set(drawn.answers) == {2, 3}
    assert np.array_equal(drawn.prompts, Lengths.drawn((4, 8), (2, 3), 2000, seed=1).prompts)


def test_where_all_steps_take_the_same_time_continuous_batching_has_the_shorter_ttft() -> None:
    flat = Curve.of({1: [10.0]})
    due = schedule("poisson", 1e9 / 200, 400, seed=1)
    drawn = Lengths.drawn((4, 8), (10, 20), 400, seed=1)
    apart = tokens.static(flat, Policy(8), due, drawn).ttft.mean()
    assert tokens.continuous(flat, 8, 0, due, drawn).ttft.mean() < 0.25 * apart
