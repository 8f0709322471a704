"""Pretrained classifiers that packages carry, fed with inputs of which the right answer is known, in narrow formats.

python benchmarks/classifiers.py characters 512 int8 calibration=max -- fp8 -- mixed formats=[int8,fp16] tolerance=20

direction: rapidocr's classifier of a line of text, upright or upside down. characters: rapidocr's recogniser, each
line read right or not. files: magika's, files of this machine by their suffix. Half of the samples calibrate.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import onnx
import yaml
from PIL import Image, ImageDraw, ImageFont

from inferprof import precisions, registry
from inferprof.model import accuracy, data, export, model_spec
from inferprof.plugins import ConvertRequest

Array = np.ndarray[Any, Any]
MODELS = Path(__file__).parents[1] / "models"
FONTS = ("DejaVuSans", "DejaVuSansMono", "DejaVuSerif", "DejaVuSans-Bold", "STIXGeneral", "STIXGeneralItalic")
HEIGHT, WIDTH = 48, 320
SUFFIXES = """
c cpp css csv elf gif h5 html ini javascript jpeg json java ipynb m4 makefile markdown npy npz parquet pdf perl pickle
png po python pythonbytecode rst ruby shell sql sqlite svg tcl toml ttf txt typescript wasm woff2 xml yaml zip gzip
"""
ROOTS = ("/usr/lib", "/usr/share", "/usr/include", sys.prefix)
EACH = 24
"""Files of a kind at most."""


@dataclass(frozen=True)
class Classifier:
    """Where the file lies, its input, and what makes samples with their right answers."""

    package: str
    onnx: str
    dims: tuple[int | str, ...]
    dtype: str
    made: Callable[[int, np.random.Generator], tuple[Array, list[Hashable]]]
    decided: Callable[[Array, onnx.ModelProto], list[Hashable]]


# --- samples ---------------------------------------------------------------------------------------------------


def line(text: str, random: np.random.Generator, width: int) -> Array:
    """A line of text in a font and grey values of its own, with noise: [3, 48, width] in [-1, 1]."""
    fonts = Path(matplotlib.get_data_path(), "fonts", "ttf")
    font = ImageFont.truetype(str(fonts / f"{random.choice(FONTS)}.ttf"), int(random.integers(24, 38)))
    paper, ink = int(random.integers(150, 256)), int(random.integers(0, 100))
    page = Image.new("L", (int(font.getlength(text)) + 16, HEIGHT), paper)
    ImageDraw.Draw(page).text((8, HEIGHT // 2), text, ink, font, anchor="lm")
    drawn = np.asarray(page.resize((min(page.width, width), HEIGHT)), np.float32)
    drawn = np.pad(drawn, ((0, 0), (0, width - drawn.shape[1])), constant_values=paper)
    drawn = (drawn + random.normal(0, 12, drawn.shape)).clip(0, 255) / 127.5 - 1
    return np.broadcast_to(drawn.astype(np.float32), (3, *drawn.shape))


def texts(count: int, random: np.random.Generator, words: int) -> Iterator[str]:
    """Some words each out of the sentences that the other models of text are fed with."""
    pool = " ".join(data.sentences(MODELS / data.SENTENCES, 0) + data.sentences(MODELS / data.SENTENCES, 1)).split()
    for _ in range(count):
        start = int(random.integers(0, len(pool) - words))
        yield " ".join(pool[start : start + int(random.integers(1, words + 1))])


def directions(count: int, random: np.random.Generator) -> tuple[Array, list[Hashable]]:
    """Lines, every other one upside down."""
    lines = [line(text, random, 192) for text in texts(count, random, 3)]
    turned = [bool(random.integers(2)) for _ in lines]
    return np.stack([each[:, ::-1, ::-1] if up else each for each, up in zip(lines, turned, strict=True)]), [*turned]


def characters(count: int, random: np.random.Generator) -> tuple[Array, list[Hashable]]:
    """Lines, and what stands in them."""
    read = [*texts(count, random, 3)]
    return np.stack([line(text, random, WIDTH) for text in read]), [*read]


def contents(count: int, random: np.random.Generator) -> tuple[Array, list[Hashable]]:
    """The first and the last 1,024 bytes of files, as magika takes them, and the kind that the suffix says."""
    folder = model_spec.package_roots("magika")[0]
    config = json.loads((folder / "models/standard_v3_3/config.min.json").read_text())
    kinds = json.loads((folder / "config/content_types_kb.min.json").read_text())
    labels = {label: number for number, label in enumerate(config["target_labels_space"])}
    of_suffix = {suffix: kind for kind in SUFFIXES.split() for suffix in kinds[kind]["extensions"]}
    paths: dict[str, list[Path]] = {}
    for path in itertools.chain.from_iterable(Path(root).rglob("*.*") for root in ROOTS):
        kind = of_suffix.get(path.suffix[1:])
        if kind and path.is_file() and not path.is_symlink() and path.stat().st_size > 64:
            paths.setdefault(kind, []).append(path)
    chosen = [
        (kind, given[place]) for kind, given in paths.items() for place in random.permutation(len(given))[:EACH]
    ]
    rows = [chosen[number] for number in random.permutation(len(chosen))[:count]]
    return np.stack([_ends(path.read_bytes()) for _, path in rows]), [labels[kind] for kind, _ in rows]


def _ends(content: bytes) -> Array:
    first, last = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
    numbers = np.full(2048, 256, np.int32)  # 256: padding
    numbers[: len(first)] = [*first]
    numbers[2048 - len(last) :] = [*last]
    return numbers


# --- answers ---------------------------------------------------------------------------------------------------


def first_class(output: Array, model: onnx.ModelProto) -> list[Hashable]:
    """The class of the largest score."""
    return [int(row.argmax()) for row in output]


def reading(output: Array, model: onnx.ModelProto) -> list[Hashable]:
    """What is read: of the first class of each step, repeated ones once and the blank (0) not at all."""
    alphabet = next(p.value for p in model.metadata_props if p.key == "character").split("\n")
    alphabet = ["", *alphabet, " "]
    return [
        "".join(alphabet[number] for number, _ in itertools.groupby(row)).strip() for row in output.argmax(axis=-1)
    ]


CLASSIFIERS = {
    "direction": Classifier(
        "rapidocr",
        "models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        ("b", 3, HEIGHT, 192),
        "float32",
        directions,
        first_class,
    ),
    "characters": Classifier(
        "rapidocr", "models/PP-OCRv6_rec_small.onnx", ("b", 3, HEIGHT, WIDTH), "float32", characters, reading
    ),
    "files": Classifier("magika", "models/standard_v3_3/model.onnx", ("b", 2048), "int32", contents, first_class),
}


# --- formats ---------------------------------------------------------------------------------------------------


def main(name: str, count: int, formats: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Print, of each format, how many answers are right, and how many are those of fp32."""
    given = CLASSIFIERS[name]
    array, answers = given.made(count, np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as folder:
        spec = _spec(name, given, array, Path(folder))
        fp32 = Path(folder, "fp32.onnx")
        export.export(spec, fp32)
        model = onnx.load(model_spec.package_roots(given.package)[0] / given.onnx)  # an export keeps no alphabet
        judged, right = array[::2], answers[::2]
        item = spec.inputs[0].name
        batches = [{item: judged[start : start + 8]} for start in range(0, len(judged), 8)]

        def decided(path: Path) -> list[Hashable]:
            return given.decided(next(iter(accuracy.joined(accuracy.run_graph(path, batches)[0]).values())), model)

        plain = decided(fp32)
        print(f"{name}: {len(judged)} samples, fp32 right {_share(plain, right)}")
        for precision, options in formats:
            request = ConvertRequest(fp32, spec, options, Path(folder, f"{precision}.onnx"))
            facts = precisions.convert(registry.precisions()[precision], request)
            mine = decided(request.out)
            print(f"{precision} {options}: right {_share(mine, right)}, as fp32 {_share(mine, plain)}{_mix(facts)}")


def _spec(name: str, given: Classifier, array: Array, folder: Path) -> model_spec.ModelSpec:
    root = model_spec.package_roots(given.package)[0]
    item = onnx.load(root / given.onnx, load_external_data=False).graph.input[0].name
    np.savez(folder / "samples.npz", **{item: array})
    inputs = [{"name": item, "dtype": given.dtype, "dims": [*given.dims], "data": "file:samples.npz"}]
    entry = {"source": "onnx", "package": given.package, "onnx": given.onnx, "task": "classification"}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({**entry, "inputs": inputs}))
    return model_spec.load(folder / f"{name}.yaml")


def _share(mine: Sequence[Hashable], wanted: Sequence[Hashable]) -> str:
    """How many are the same, of how many, and 95 % of the share by Wilson."""
    from scipy.stats import binomtest

    same = sum(a == b for a, b in zip(mine, wanted, strict=True))
    low, high = binomtest(same, len(mine)).proportion_ci(method="wilson")
    return f"{same / len(mine):.2%} ({low:.2%} to {high:.2%})"


def _mix(facts: dict[str, Any]) -> str:
    if "front" not in facts:
        return ""
    held, nodes = facts["held_out"], {name: len(given) for name, given in facts["chosen"].items()}
    full = {name: round(facts["time_us"] / us, 3) for name, us in facts["full_us"].items()}
    return f"; nodes {nodes}, {held['sqnr_db']:.1f} dB, time of each in full {full}, {facts['evaluations']}"


if __name__ == "__main__":
    kind, samples, *rest = sys.argv[1:]
    parts = [[*group] for dashes, group in itertools.groupby(rest, lambda word: word == "--") if not dashes]
    pairs = [
        (first, {key: yaml.safe_load(value) for key, _, value in (word.partition("=") for word in words)})
        for first, *words in parts
    ]
    main(kind, int(samples), pairs)
