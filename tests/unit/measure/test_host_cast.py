"""float16 of the caller, cast on the host: which arrays, to what values, and when."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from inferprof.case import Variant
from inferprof.device import Buffer
from inferprof.devices.cpu import CpuDevice
from inferprof.errors import UserError
from inferprof.measure import host_cast
from inferprof.measure.host_cast import Array, given_as_half
from inferprof.measure.lane import Lane
from inferprof.plugins import Feeds

PIXELS = np.array([[0.1, -2.0], [3.3, 65504.0]], np.float32)
TOKENS = np.array([1, 2])


def variant(kind: str) -> Variant:
    return Variant("cast", {"host_cast": kind})


@pytest.mark.parametrize("kind", ["elementwise", "vectorised"])
def test_float32_inputs_come_rounded_to_half_and_the_others_as_they_are(kind: str) -> None:
    feeds = given_as_half({"pixels": PIXELS, "tokens": TOKENS}, variant(kind))
    assert list(feeds) == ["pixels", "tokens"] and len(feeds) == 2
    assert feeds["tokens"] is TOKENS
    assert feeds["pixels"].dtype == np.float32
    np.testing.assert_array_equal(feeds["pixels"], PIXELS.astype(np.float16).astype(np.float32))
    assert feeds["pixels"][0, 0] != PIXELS[0, 0]  # a tenth is no half


def test_without_the_option_the_feeds_are_the_same_object() -> None:
    feeds: Feeds = {"pixels": PIXELS}
    assert given_as_half(feeds, Variant()) is feeds


@pytest.mark.parametrize(
    ("feeds", "kind", "message"),
    [
        ({"pixels": PIXELS}, "fast", "host_cast 'fast' is unknown; known: elementwise, vectorised"),
        ({"tokens": TOKENS}, "vectorised", "host_cast is about float32 inputs, and this model has none"),
    ],
)
def test_what_cannot_be_cast_is_refused_in_one_line(feeds: Feeds, kind: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        given_as_half(feeds, variant(kind))


def test_a_lane_casts_in_each_stage_of_inputs_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    casts: list[Array] = []

    def counted(half: Array) -> Array:
        casts.append(half)
        return half.astype(np.float32)

    monkeypatch.setattr(host_cast, "CASTS", {"counted": counted})
    lane = Lane(Echo(), CpuDevice(), given_as_half({"x": PIXELS}, variant("counted")), "pageable")
    before = len(casts)
    lane.begin()
    lane.begin()
    assert len(casts) - before == 2
    np.testing.assert_array_equal(lane.finish()["x"], PIXELS.astype(np.float16).astype(np.float32))


class Echo:
    """A session whose output is its input."""

    def bind(self, inputs: Mapping[str, Buffer]) -> None:
        self.inputs = inputs

    def enqueue(self) -> None:
        pass

    def outputs(self) -> dict[str, Buffer]:
        return dict(self.inputs)

    def capture_graph(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def memory(self) -> dict[str, int]:
        return {}
