"""What a row of the frame that plots draw has of a case's shape."""

from __future__ import annotations

import pytest

from inferprof.case import Shape
from inferprof.report import plot_frame


@pytest.mark.parametrize(
    ("label", "length"),
    [
        ("b1_s128", 128),
        ("b4_seq32", 32),
        ("b1_sequencelength16", 16),
        ("b8_h2tokens5", 5),
        ("b8", None),
        ("b1_h512w512", None),
        ("b1_seqa3seqb4", None),
    ],
)
def test_the_length_of_a_sequence_is_known_by_the_names_that_exporters_give_it(
    label: str, length: int | None
) -> None:
    assert plot_frame._length(Shape.parse(label)) == length
