"""What an option may be is declared with it, and checked before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.facts import naming

from inferprof import config, errors, registry
from inferprof.best import space
from inferprof.errors import UserError

OPTIONS = {
    name: each for backend in registry.backends().values() for name, each in registry.options_of(backend).items()
}
NONSENSE: tuple[Any, ...] = (-1, 2.5, {}, {"a": 1}, [1], None)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("threads", value) for value in (0, -1, 2.0, True, "two", [1], 10**9)],
        *[("optimization_level", value) for value in (-1, 6, "high")],
        *[("workspace", value) for value in (0, -5, "1G")],
        *[("cuda_graph", value) for value in (1, "yes", "on")],
        *[("profile", value) for value in ("b1", [], ["b0"], ["b1", 2], {"b": 1})],
        *[("parallel", value) for value in (2, {}, {"tensor": 0}, {"tensor": True}, {"tensor": 2, "data": 2})],
        ("placement", "moon"),
        ("host_cast", "fast"),
        ("compile_mode", "fastest"),
        ("quantize", "float9"),
        ("graph_pool", "mine"),
        ("graph_order", "random"),
        ("graph_optimization", True),
        ("spinning", 0),
        ("dynamic_blocks", -1),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused_in_one_line(option: str, value: Any) -> None:
    with pytest.raises(UserError, match=naming("v", option, "not")) as refused:
        config.variants([{"name": "v", option: value}])
    assert str(refused.value).count("\n") == 0


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_every_option_refuses_what_makes_no_sense(option: str) -> None:
    refused = [value for value in NONSENSE if not OPTIONS[option].allowed.fits(value)]
    assert refused == list(NONSENSE)
    assert OPTIONS[option].allowed.words


def test_what_a_search_tries_is_allowed() -> None:
    for backend in registry.backends().values():
        options = registry.options_of(backend)
        tried = {name: values for name, values in space.TRIES.items() if name in options}
        tried |= {name: each.tries for name, each in registry.runtime_options(backend.name).items()}
        for name, values in tried.items():
            assert [value for value in values if not options[name].allowed.fits(value)] == []


def test_the_options_of_a_number_format_allow_their_defaults_and_refuse_nonsense() -> None:
    for precision in registry.precisions().values():
        assert precision.allows.keys() == precision.options.keys()
        for name, default in precision.options.items():
            assert precision.allows[name].fits(default), (precision.name, name)
            assert [v for v in ({"a": 1}, None) if precision.allows[name].fits(v)] == [], (precision.name, name)


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "int8", "samples": -1},
        {"name": "fp16", "samples": 0},
        {"name": "int4", "block": 48},
        {"name": "int4", "calibration": "max"},
        {"name": "nvfp4", "attention": 1},
        {"name": "mixed", "formats": ["int9"]},
        {"name": "mixed", "formats": ["fp16", "bf16"]},
        {"name": "mixed", "formats": ["mixed"]},
        {"name": "mixed", "tolerance": float("nan")},
        {"name": "mixed", "gpu": "H101"},
    ],
    ids=str,
)
def test_a_format_whose_option_cannot_be_is_refused_when_the_study_is_planned(entry: dict[str, Any]) -> None:
    (option,) = entry.keys() - {"name"}
    with pytest.raises(UserError, match=naming(entry["name"], option, "not")):
        config.precisions([entry])


def test_of_two_names_that_are_as_near_the_one_that_begins_alike_is_meant() -> None:
    allowed = ("optimization_level", "graph_optimization", "threads")
    assert errors.meant(["graph_optimization_level"], allowed).endswith(" graph_optimization?")
    assert errors.meant(["optimisation_level"], allowed).endswith(" optimization_level?")
