"""A key that `--config` gave means what it would mean in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inferprof import config
from inferprof.files import read_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ([{"name": "graph", "cuda_graph": "true"}], [{"name": "graph", "cuda_graph": True}]),
        ({"rounds": "2", "budget_s": "0.5"}, {"rounds": 2, "budget_s": 0.5}),
        ([["1", "2.5"], "False"], [[1, 2.5], False]),
        (["b1_s128", "2024-01-01", "{broken", "null", ""], ["b1_s128", "2024-01-01", "{broken", "null", ""]),
        ("auto", "auto"),
    ],
)
def test_numbers_and_booleans_inside_of_what_config_gave_are_numbers_and_booleans(text: Any, value: Any) -> None:
    assert config.as_in_a_file({"key": text, "other": ["1"]}, ["key"]) == {"key": value, "other": ["1"]}


def test_what_is_text_by_the_schema_stays_text(repository: Path) -> None:
    assert config.as_in_a_file({"target": ["12.0"]}, ["target"]) == {"target": ["12.0"]}
    properties = read_json(repository / "workflow/inferprof/schemas/config.schema.json")["properties"]
    of_text = {name for name, one in properties.items() if one.get("items", {}).get("type") == "string"}
    assert of_text == config.TEXTS
