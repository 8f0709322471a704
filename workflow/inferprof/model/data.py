"""What models are fed with: seeded numbers, a photograph, English sentences, or the user's arrays."""

from __future__ import annotations

import functools
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inferprof import processes
from inferprof.case import Shape
from inferprof.errors import UserError, unknown
from inferprof.model import pretrained
from inferprof.model.model_spec import InputSpec, ModelSpec
from inferprof.units import GIB

Array = np.ndarray[Any, Any]
Generator = np.random.Generator

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Of the training images, per channel in [0, 1]: what image classifiers are trained to be fed with.
https://pytorch.org/vision/stable/models.html"""
CROP_AREA = (0.25, 1.0)
CROP_RATIO = (3 / 4, 4 / 3)
"""Share of the photograph's area and width to height of a random crop."""
SENTENCES = Path("data", "sentences.txt")
"""What tokens are made of, from the folder of the model's YAML file."""
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")


@dataclass(frozen=True)
class _Batch:
    """What one batch is made of: the model, its resolved shape, and seed and position of the batch."""

    spec: ModelSpec
    shape: Shape
    seed: int
    index: int
    tokenizer: Any

    def rng(self, stream: int) -> Generator:
        """Random numbers of one input (or of -1: all) of this batch; the same however many batches are asked for."""
        return np.random.default_rng((self.seed, self.index, stream + 1))

    def rows(self, candidates: Sequence[int]) -> list[int]:
        """Which of the candidates this batch holds: a seeded permutation, dealt out batch after batch."""
        order = np.random.default_rng((self.seed,)).permutation(candidates)
        first = self.index * self.shape.batch
        return [int(order[(first + i) % len(order)]) for i in range(self.shape.batch)]

    def half(self, available: int) -> Sequence[int]:
        """The even or the odd ones of what is available, as the seed is; the only one where there is but one."""
        return range(self.seed % 2, available, 2) or range(available)


def feeds(spec: ModelSpec, shape: Shape, count: int, seed: int) -> list[dict[str, Array]]:
    """`count` batches of host arrays by input name, C-contiguous, the same for the same seed on any machine.

    Even and odd seeds never share a sentence, nor a row of the user's (of a folder of images, or a file of two or
    more), so that what calibrates a model is not what measures it. Raises UserError where the data of the YAML
    can't be had or don't fit the model.
    """
    resolved = spec.at(shape)
    _fits(spec, resolved, count)
    tokenizer = _tokenizer(spec)
    return [_feed(_Batch(spec, resolved, seed, index, tokenizer)) for index in range(count)]


def _fits(spec: ModelSpec, shape: Shape, count: int) -> None:
    """Raises UserError for more samples than this machine holds twice, which joining them does."""
    each = sum(math.prod(item.shape(shape)) * np.dtype(item.dtype).itemsize for item in spec.inputs)
    if count > (most := processes.memory() // max(1, 2 * each)):
        wanted, gib = count * shape.batch, each * count / GIB
        raise UserError(
            f"model {spec.name}: {wanted:,} samples at {shape} are {gib:,.0f} GiB, and this machine holds "
            f"{most * shape.batch:,} of them; ask for fewer"
        )


def origin(spec: ModelSpec) -> dict[str, Any]:
    """Of an accuracy: whether the weights were trained, and which inputs are random numbers."""
    random = [item.name for item in spec.inputs if item.data.partition(":")[0] in ("normal", "uniform", "integers")]
    return {"pretrained": spec.pretrained, "random_inputs": random}


def files(spec: ModelSpec) -> list[Path]:
    """The files and folders beside the model's YAML file that its inputs are fed from."""
    paths = []
    for item in spec.inputs:
        kind, _, argument = item.data.partition(":")
        if kind in _TOKEN_FIELDS:
            paths.append(spec.path.parent / SENTENCES)
        elif kind in ("file", "image") and argument:
            paths.append(spec.path.parent / argument)
    return paths


def _feed(batch: _Batch) -> dict[str, Array]:
    """One batch. The inputs of one sentence are tokenised together."""
    tokens: dict[str, Array] | None = None
    made: dict[str, Array] = {}
    for stream, item in enumerate(batch.spec.inputs):
        kind, _, argument = item.data.partition(":")
        if kind in _TOKEN_FIELDS:
            tokens = tokens or _tokenise(batch, item)
            array = tokens[_TOKEN_FIELDS[kind]]
        elif kind in _MAKERS:
            array = _MAKERS[kind](batch, item, batch.rng(stream), argument)
        else:
            raise unknown("data", [item.data], [*_MAKERS, *_TOKEN_FIELDS])
        made[item.name] = _fitted(array, batch, item)
    return made


def _fitted(array: Array, batch: _Batch, item: InputSpec) -> Array:
    """`array` in the input's dtype and shape. Raises UserError where it has another one, or holds NaN."""
    where = f"model {batch.spec.name}, input {item.name}, data {item.data}"
    expected = item.shape(batch.shape)
    if array.shape != expected:
        raise UserError(f"{where}: gave {list(array.shape)}, but at {batch.shape} the input is {list(expected)}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise UserError(f"{where}: holds NaN or infinity; correct the data")
    return np.asarray(array.astype(item.dtype, copy=False), order="C")  # a scalar stays one


# --- numbers ---------------------------------------------------------------------------------------------------


def _normal(batch: _Batch, item: InputSpec, rng: Generator, argument: str) -> Array:
    """Standard normal numbers."""
    _needs_float(batch, item)
    return rng.standard_normal(item.shape(batch.shape), dtype=np.float32)


def _uniform(batch: _Batch, item: InputSpec, rng: Generator, argument: str) -> Array:
    """Numbers in [0, 1)."""
    _needs_float(batch, item)
    return rng.random(item.shape(batch.shape), dtype=np.float32)


def _zeros(batch: _Batch, item: InputSpec, rng: Generator, argument: str) -> Array:
    """Zeros."""
    return np.zeros(item.shape(batch.shape), item.dtype)


def _integers(batch: _Batch, item: InputSpec, rng: Generator, argument: str) -> Array:
    """`integers:N`: whole numbers in [0, N)."""
    high = int(argument)
    if high < 1 or (np.dtype(item.dtype).kind in "iu" and high - 1 > np.iinfo(item.dtype).max):
        raise UserError(
            f"model {batch.spec.name}, input {item.name}: integers:{argument} draws from 0 to {high - 1}, which "
            f"{item.dtype} cannot hold; choose N from 1 upwards within its range"
        )
    return rng.integers(0, high, item.shape(batch.shape))


def _constant(batch: _Batch, item: InputSpec, rng: Generator, argument: str) -> Array:
    """`constant:X`: X everywhere."""
    value = np.asarray(float(argument)).astype(item.dtype)
    if np.dtype(item.dtype).kind != "f" and float(value) != float(argument):
        raise UserError(f"model {batch.spec.name}, input {item.name}: {item.dtype} cannot hold {argument}")
    return np.full(item.shape(batch.shape), value)


def _needs_float(batch: _Batch, item: InputSpec) -> None:
    if not item.dtype.startswith("float"):
        raise UserError(
            f"model {batch.spec.name}, input {item.name}: data {item.data} makes fractions, but the input is "
            f"{item.dtype}; write data: integers:N in {batch.spec.path}"
        )


# --- photographs -----------------------------------------------------------------------------------------------


def _image(batch: _Batch, item: InputSpec, rng: Generator, argument: str) -> Array:
    """`image` or `image:FOLDER`: random crops, resized and flipped, normalised as ImageNet's. [b, 3, H, W]."""
    _needs_float(batch, item)
    shape = item.shape(batch.shape)
    if len(shape) != 4 or shape[1] != 3:
        raise UserError(f"model {batch.spec.name}, input {item.name}: image needs dims [b, 3, height, width]")
    paths = _photographs(batch.spec, argument)
    crops = [_crop(_photograph(paths[row]), shape[2:], rng) for row in batch.rows(batch.half(len(paths)))]
    mean, std = np.array(IMAGENET_MEAN, np.float32), np.array(IMAGENET_STD, np.float32)
    normalised: Array = (np.stack(crops).astype(np.float32) / 255 - mean) / std
    return normalised.transpose(0, 3, 1, 2)


def _photographs(spec: ModelSpec, folder: str) -> list[Path]:
    """The images of the user's folder, or the photograph that comes with Matplotlib."""
    if folder:
        root = spec.path.parent / folder
        paths = sorted(path for path in root.glob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
        if not paths:
            raise UserError(f"{root} holds no images ({', '.join(IMAGE_SUFFIXES)}), which {spec.path} asks for")
        return paths
    try:
        from matplotlib import cbook
    except ImportError:
        raise UserError(f"model {spec.name}: data image needs matplotlib's photograph; install it") from None
    return [Path(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False))]


@functools.lru_cache(maxsize=64)
def _photograph(path: Path) -> Any:
    """A decoded image."""
    try:
        from PIL import Image
    except ImportError:
        raise UserError("images are read with Pillow; install pillow") from None
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except OSError as error:
        raise UserError(f"{path} is not a readable image ({error})") from None


def _crop(photograph: Any, size: tuple[int, ...], rng: Generator) -> Array:
    """A random part of a photograph at `size` (height, width): uint8 [H, W, 3], mirrored half of the time."""
    height, width = size
    area = photograph.width * photograph.height * rng.uniform(*CROP_AREA)
    ratio = np.exp(rng.uniform(*np.log(CROP_RATIO)))
    crop_width = int(min(photograph.width, max(1, round(np.sqrt(area * ratio)))))
    crop_height = int(min(photograph.height, max(1, round(np.sqrt(area / ratio)))))
    left = int(rng.integers(0, photograph.width - crop_width + 1))
    top = int(rng.integers(0, photograph.height - crop_height + 1))
    box = (left, top, left + crop_width, top + crop_height)
    pixels = np.asarray(photograph.resize((width, height), box=box))
    return pixels[:, ::-1] if rng.random() < 0.5 else pixels


# --- sentences -------------------------------------------------------------------------------------------------

_TOKEN_FIELDS: Mapping[str, str] = {"tokens": "ids", "token_mask": "attention_mask", "token_types": "type_ids"}


def sentences(path: Path, half: int) -> list[str]:
    """The even (0) or odd (1) groups of a file of sentences. A group is near-paraphrases; a blank line ends it."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; models of text are fed with its sentences") from None
    groups = [group.splitlines() for group in text.strip().split("\n\n")]
    return [line for group in groups[half::2] for line in group if not line.startswith("#")]


def _tokenise(batch: _Batch, item: InputSpec) -> dict[str, Array]:
    """Token ids, mask and types [b, s]. A row starts with a sentence of its own and goes on with the next ones.

    How far a row is filled is drawn at random, so that a batch holds padded and full rows alike.
    """
    tokenizer = batch.tokenizer
    shape = item.shape(batch.shape)
    if len(shape) != 2:
        raise UserError(f"model {batch.spec.name}, input {item.name}: {item.data} needs dims [b, s]")
    tokenizer.enable_truncation(shape[1])
    tokenizer.enable_padding(length=shape[1], **_padding(tokenizer))
    path = batch.spec.path.parent / SENTENCES
    lines = sentences(path, batch.seed % 2)
    if not lines:
        raise UserError(f"{path} holds no sentences")
    rng = batch.rng(-1)
    texts = [_passage(lines, start, int(rng.integers(1, shape[1] + 1))) for start in batch.rows(range(len(lines)))]
    encoded = tokenizer.encode_batch(texts)
    return {field: np.array([getattr(row, field) for row in encoded]) for field in _TOKEN_FIELDS.values()}


def _passage(lines: list[str], start: int, words: int) -> str:
    """Sentence `start` and as many of those behind it as bring the passage to `words` words."""
    passage, index = lines[start], start
    while len(passage.split()) < words:
        index = (index + 1) % len(lines)
        passage = f"{passage} {lines[index]}"
    return passage


def _tokenizer(spec: ModelSpec) -> Any:
    """The model's own tokenizer; None where no input is fed with text."""
    item = next((item for item in spec.inputs if item.data in _TOKEN_FIELDS), None)
    if item is None:
        return None
    path = pretrained.tokenizer(spec)
    if path is None:
        raise UserError(
            f"model {spec.name}, input {item.name}: data {item.data} needs the model's tokenizer.json; name its "
            f"repository: and revision: or package: in {spec.path}, or write data: integers:N"
        )
    try:
        import tokenizers
    except ImportError:
        raise UserError(f"model {spec.name} is fed with text, which needs tokenizers; install it") from None
    return tokenizers.Tokenizer.from_file(str(path))


def _padding(tokenizer: Any) -> dict[str, Any]:
    """The padding token that the tokenizer's file names, or the usual one of its vocabulary."""
    if tokenizer.padding is not None:
        return {key: tokenizer.padding[key] for key in ("pad_id", "pad_type_id", "pad_token", "direction")}
    for token in ("[PAD]", "<pad>", "<|endoftext|>"):
        if (number := tokenizer.token_to_id(token)) is not None:
            return {"pad_id": number, "pad_token": token}
    return {}


# --- the user's arrays -----------------------------------------------------------------------------------------


def _file(batch: _Batch, item: InputSpec, rng: Generator, argument: str) -> Array:
    """`file:PATH.npz`: the array of the input's name (or that of a .npy), its rows in seeded order."""
    path = batch.spec.path.parent / argument
    array = _stored(path, item.name)
    if array.size == 0:
        raise UserError(f"{path}: {item.name} is empty")
    if array.dtype != np.dtype(item.dtype):
        raise UserError(f"{path}: {item.name} is {array.dtype}, but the model's input is {item.dtype}")
    if not item.dims or not isinstance(item.dims[0], str):
        return array
    return array[batch.rows(batch.half(len(array)))] if array.ndim else array


def _stored(path: Path, name: str) -> Array:
    """The array `name` of a .npz, or the one of a .npy."""
    try:
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            arrays = dict(content) if isinstance(content, np.lib.npyio.NpzFile) else {name: content}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: not a readable NumPy file ({error})") from None
    if name not in arrays:
        raise UserError(f"{path}: no array {name}; it holds {', '.join(arrays) or 'nothing'}")
    array: Array = arrays[name]
    return array


_Maker = Callable[[_Batch, InputSpec, Generator, str], Array]
_MAKERS: Mapping[str, _Maker] = {
    "normal": _normal,
    "uniform": _uniform,
    "zeros": _zeros,
    "integers": _integers,
    "constant": _constant,
    "image": _image,
    "file": _file,
}
