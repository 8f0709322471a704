from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.facts import naming

from inferprof.backends.profile import profile_of
from inferprof.case import Shape, Variant
from inferprof.errors import UserError
from inferprof.model.model_spec import InputSpec, ModelSpec

SPEC = ModelSpec(
    name="bert",
    path=Path("bert.yaml"),
    source="transformers",
    inputs=(InputSpec("ids", "int64", ("b", "s")), InputSpec("table", "float32", (3, 2))),
    sizes={"s": 128},
)


def profile(label: str, **options: list[str] | str) -> object:
    return profile_of(SPEC, Shape.parse(label), Variant("v", options))


def test_without_the_option_an_engine_serves_exactly_its_shape() -> None:
    fixed = {"min": (3, 2), "opt": (3, 2), "max": (3, 2)}
    assert profile("b8_s64") == {"ids": {"min": (8, 64), "opt": (8, 64), "max": (8, 64)}, "table": fixed}


def test_the_option_widens_the_range_and_the_shape_stays_the_optimum() -> None:
    fixed = {"min": (3, 2), "opt": (3, 2), "max": (3, 2)}
    ranges = {"ids": {"min": (1, 64), "opt": (8, 64), "max": (64, 128)}, "table": fixed}
    assert profile("b8_s64", profile=["b1", "b64_s128"]) == ranges


def test_a_shape_outside_of_the_listed_ones_is_served_all_the_same() -> None:
    ranges = profile_of(SPEC, Shape.parse("b128"), Variant("v", {"profile": ["b1", "b64"]}))
    assert ranges["ids"] == {"min": (1, 128), "opt": (128, 128), "max": (128, 128)}


def test_what_is_no_list_of_shapes_is_named() -> None:
    with pytest.raises(UserError, match=naming("'b1'", "list of shapes", "profile: [b1, b64]")):
        profile("b8", profile="b1")
    with pytest.raises(UserError, match=naming("bert", "no", "b1_h2", "b", "s")):
        profile("b8", profile=["b1_h2"])
