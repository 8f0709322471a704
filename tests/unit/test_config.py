"""A key that `--config` gave means what it would mean in a file."""

from __future__ import annotations

from typing import Any

import pytest

from inferprof import config


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ([{"name": "graph", "cuda_graph": "true"}], [{"name": "graph", "cuda_graph": True}]),
        ({"rounds": "2", "budget_s": "0.5"}, {"rounds": 2, "budget_s": 0.5}),
        (["12.0", "8.9"], [12.0, 8.9]),
        (["b1_s128", "2024-01-01", "{broken", "null", ""], ["b1_s128", "2024-01-01", "{broken", "null", ""]),
        ("auto", "auto"),
    ],
)
def test_numbers_and_booleans_inside_of_what_config_gave_are_numbers_and_booleans(text: Any, value: Any) -> None:
    assert config.as_in_a_file({"key": text, "other": ["1"]}, ["key"]) == {"key": value, "other": ["1"]}
