"""The facts of a sentence are its numbers, names and decisions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.facts import facts, mentions, naming, states

SENTENCE = "fp16/ort_cuda b8: 12 of 1,261 launches take 2.5 ms (46.2 %), slower by `cuda_graph: true` on the GPU."
FACTS = ["fp16/ort_cuda", "b8", "12", "1,261", "launches", "2.5 ms", "46.2 %", "slower", "cuda_graph: true", "GPU"]


def test_numbers_have_their_units_and_names_their_marks_and_words_fall_away() -> None:
    assert facts(SENTENCE) == FACTS


def test_facts_are_stated_where_none_is_between_them() -> None:
    assert states(SENTENCE, "2.5 ms", "46.2 %")
    assert not states(SENTENCE, "2.5 ms", "slower") and not states(SENTENCE, "46.2 %", "2.5 ms")
    assert not states(SENTENCE, "2.5 ms", "46.3 %")


@given(st.lists(st.floats(0, 1e6).map("{:.3f} ms".format)))
def test_every_number_of_a_sentence_is_a_fact_of_it(numbers: list[str]) -> None:
    assert facts(" and then ".join(numbers)) == numbers


@pytest.mark.parametrize(("parts", "matches"), [(("b", "c.d"), True), (("c.d", "b"), False), (("cxd",), False)])
def test_a_message_names_its_parts_in_their_order(parts: tuple[str, ...], matches: bool) -> None:
    assert bool(re.search(naming(*parts), "a b\nc.d e")) is matches
    assert mentions("a b\nc.d e", *parts) is matches
