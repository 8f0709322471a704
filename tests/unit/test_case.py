from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.facts import naming

from inferprof.case import Case, Shape, Variant, is_plain
from inferprof.errors import UserError

NAMES = st.from_regex(r"[A-Za-z0-9_äß·-]{1,40}", fullmatch=True).filter(is_plain)


@pytest.mark.parametrize(
    ("label", "sizes"),
    [
        ("b8", {"b": 8}),
        ("b8_s128", {"b": 8, "s": 128}),
        ("b1_h512w256", {"b": 1, "h": 512, "w": 256}),
    ],
)
def test_a_label_and_its_shape_say_the_same(label, sizes):
    shape = Shape.parse(label)
    assert shape.as_dict() == sizes
    assert shape.batch == sizes["b"]
    assert shape.label == str(shape) == label


@pytest.mark.parametrize("label", ["b0", "b-1", "8", "b8s128", "b8_s0", "b8_", "b8_s", "b8_S128", "", "b08", "b1.5"])
def test_what_is_not_a_shape_is_refused_with_an_example(label):
    with pytest.raises(UserError, match=naming(repr(label), "b8, b8_s128")):
        Shape.parse(label)


@given(
    st.integers(1, 10**10 - 1),
    st.dictionaries(st.from_regex("[a-z]{1,9}", fullmatch=True).filter("b".__ne__), st.integers(1, 10**10 - 1)),
)
def test_every_shape_is_read_from_its_label(batch, sizes):
    shape = Shape((("b", batch), *sizes.items()))
    assert Shape.parse(shape.label) == shape


@given(st.lists(NAMES, min_size=5, max_size=5), st.sampled_from(["", "results/h100/engine"]))
def test_every_case_is_read_from_its_path(names, folder):
    case = Case(*names)
    assert Case.from_path(case.path) == case
    assert Case.from_path(PurePosixPath(folder) / f"{case.path}.build.json") == case


@given(NAMES, st.sampled_from(["/", "\\", "*", "?", "[", "\n", "\x7f"]), st.data())
def test_no_name_of_a_case_means_more_than_itself(name, mark, data):
    at = data.draw(st.integers(0, len(name)))
    broken = f"{name[:at]}{mark}{name[at:]}"
    assert is_plain(name) and not is_plain(broken)
    with pytest.raises(UserError, match=naming(repr(broken))):
        Case("vit", "fp16", broken, "default", "b8")


def test_a_symbol_given_twice_is_refused():
    with pytest.raises(UserError, match="gives a symbol twice"):
        Shape.parse("b8_s1s2")


def test_a_case_and_its_path_say_the_same():
    case = Case("vit", "fp16", "ort_cuda", "graph", "b8_s128")
    assert str(case) == "vit/fp16/ort_cuda/graph/b8_s128"
    assert Case.from_path(case.path) == case
    assert Case.from_path(PurePosixPath("results/h100/engine") / f"{case.path}.build.json") == case


def test_an_option_of_another_kind_is_refused_with_what_it_may_be():
    variant = Variant("big", {"tf32": "false", "workspace": "4 GiB", "optimization_level": 3})
    assert variant.whole("optimization_level") == 3
    with pytest.raises(UserError, match=naming("big", "tf32", "false", "true", "false")):
        variant.flag("tf32")
    with pytest.raises(UserError, match=naming("big", "workspace", "4 GiB", "not", "0", "more")):
        variant.whole("workspace")


def test_the_case_of_a_capture_is_known_by_its_folders_alone():
    case = Case("vit", "fp16", "ort_cuda", "graph", "b8_s128")
    assert Case.of_capture(f"/r/h100/capture/nsys/{case}.sqlite") == case
    assert Case.of_capture(f"capture/kineto/{case}.json.gz") == case
    for foreign in ("trace.sqlite", "/data/projects/a/b/c/trace.sqlite", "capture/trace.sqlite"):
        assert Case.of_capture(foreign) is None


def test_a_variant_reads_its_options_with_defaults():
    variant = Variant("graph", {"cuda_graph": True, "placement": "pinned"})
    assert variant.flag("cuda_graph") and not variant.flag("tf32")
    assert variant.text("placement", "pageable") == "pinned"
    assert Variant().text("placement", "pageable") == "pageable"


@pytest.mark.parametrize(
    ("tuning", "path"),
    [
        ({}, None),
        ({"tuning": "fresh"}, None),
        ({"tuning": "library"}, None),
        ({"tuning": "tuned"}, "stack/fp16/torch_eager/tuned/b512"),
        ({"tuning": "tuned/b64"}, "stack/fp16/torch_eager/tuned/b64"),
    ],
)
def test_a_variant_says_whose_tuned_configurations_a_case_takes_over(tuning, path):
    other = Case("stack", "fp16", "torch_eager", "v", "b512").tuned_by(Variant("v", tuning))
    assert (str(other) if other else None) == path


@pytest.mark.parametrize(
    ("tuning", "own"),
    [({}, False), ({"tuning": "fresh"}, True), ({"tuning": "library"}, True), ({"tuning": "o"}, False)],
)
def test_a_profiled_run_takes_over_what_the_bare_one_chose(tuning, own):
    case = Case("stack", "fp16", "torch_eager", "v", "b512")
    assert (case.tuned_by(Variant("v", tuning), profiled=True) == case) is own
