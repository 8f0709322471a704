"""The best case as a short program that needs no inferprof, with its latency and versions in the heading."""

from __future__ import annotations

import inspect
import os
import pprint
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from inferprof.backends import ort_options, ort_tensorrt, ort_tensorrt_rtx, torch_options
from inferprof.backends.inductor import DEFAULT_MODE
from inferprof.backends.ort_transformers import OFF, TRANSFORMER_OPTIMIZER
from inferprof.backends.profile import profile_of
from inferprof.backends.torch import DTYPES
from inferprof.best.rounds import CONFIRM, Rounds, first_round
from inferprof.best.space import Spot, baseline
from inferprof.case import Case, Shape, Variant
from inferprof.documents import Record, Trail
from inferprof.documents.trail import last_duel
from inferprof.errors import UserError
from inferprof.model.model_spec import InputSpec, ModelSpec
from inferprof.model.whole_masks import register_whole_masks
from inferprof.study import Study
from inferprof.units import NS_PER_MS

PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "ort": ("onnxruntime-gpu", "onnxruntime", "onnxruntime-ep-nv-tensorrt-rtx", "torch", "numpy"),
    "torch": ("torch", "transformers", "timm", "torchvision", "numpy"),
    "tensorrt": ("tensorrt", "tensorrt-rtx", "torch", "numpy"),
}
"""Family of programs, whose template has its name → the packages that it runs on."""
UNPROVEN: Final = frozenset({"ort_tensorrt", "ort_tensorrt_rtx", "tensorrt", "tensorrt_rtx"})
"""Runtimes whose programs nobody of us ran."""
LEVELS: Final[Mapping[str, int]] = {"disabled": 0, "basic": 1, "extended": 2, "all": 99}
CPU: Final = "CPUExecutionProvider"
WIDTH: Final = 110


@dataclass(frozen=True)
class Winner:
    """The best case of a search, and one of the records that its latency is from."""

    study: Study
    trail: Trail
    spot: Spot
    record: Record

    @property
    def family(self) -> str:
        """The template of its program."""
        return self.spot.case.backend.partition("_")[0]

    @property
    def spec(self) -> ModelSpec:
        """The model."""
        return self.study.models[self.spot.case.model]

    @property
    def threads(self) -> str:
        """How many threads, as code."""
        return str(self.spot.variant.options.get("threads", "len(os.sched_getaffinity(0))"))


def program(study: Study, results: Path, trail: Trail, file: Path) -> str:
    """The program of a search's best case so far, to be written to `file`.

    Raises UserError where no round of that case was measured.
    """
    import jinja2

    if trail.ended == "failed":
        return f"raise SystemExit({trail.reason!r})\n"
    winner = _winner(study, results, trail)
    if reason := _unwritten(winner):
        return "\n".join([f'"""{title(trail)}\n', *heading(winner), '"""\n', f"raise SystemExit({reason!r})\n"])
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("inferprof.best"),
        autoescape=False,  # Python, and no page
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    own = {"ort": _of_ort, "torch": _of_torch, "tensorrt": _of_tensorrt}[winner.family](winner)
    if own["file"]:
        own["file"] = os.path.relpath((results / own["file"]).resolve(), file.resolve().parent)
    text = environment.get_template(f"{winner.family}.py.j2").render(
        title=title(trail),
        heading=[*heading(winner), *flags_elsewhere(winner)],
        inputs={item.name: _expression(item, winner.record) for item in winner.spec.inputs},
        pinned=winner.spot.variant.options.get("placement") == "pinned",
        **own,
    )
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _unwritten(winner: Winner) -> str | None:
    """Why no program is written; None where one is."""
    if winner.spec.kv_cache:
        return "no program is written for a step on a KV cache: inferprof run does it"
    if winner.spot.variant.options.keys() & {"parallel", "quantize"}:
        return "no program is written for a divided or quantized module: inferprof run does it"
    return None


# --- what the templates need -----------------------------------------------------------------------------------


def _of_ort(winner: Winner) -> dict[str, Any]:
    """ONNX Runtime on the CPU, or on the GPU with its arrays bound to it."""
    case, variant = winner.spot.case, winner.spot.variant
    profile = profile_of(winner.spec, Shape.parse(case.shape), variant)
    on_plugin = case.backend == "ort_tensorrt_rtx"
    kind = TRANSFORMER_OPTIMIZER.given(variant) if case.backend in TRANSFORMER_OPTIMIZER.backends else None
    providers: list[Any] = [CPU]
    if case.backend == "ort_cuda":
        providers = [("CUDAExecutionProvider", _cuda_options(variant)), CPU]
    elif case.backend == "ort_tensorrt":
        cache = ort_tensorrt.of_provider(Path("engines"), profile, variant, None)  # built by the first inference
        providers = [(ort_tensorrt.NAME, cache), CPU]
    return {
        "plugin": ort_tensorrt_rtx.PLUGIN if on_plugin else None,
        "plugin_options": ort_tensorrt_rtx.of_provider(profile, variant, None) if on_plugin else None,
        "file": _engine(winner) if on_plugin else f"onnx/{case.model}/{case.precision}.onnx",
        "providers": None if on_plugin else pprint.pformat(providers, width=WIDTH, sort_dicts=False),
        "outputs": None if case.backend == "ort_cpu" else _arrays(winner.record.outputs),
        "tf32": int(variant.flag("tf32")) if "tensorrt" in case.backend else None,
        "transformer": None if kind == OFF else kind,
        "threads": winner.threads,
        "settings": list(_session_lines(variant)),
    }


def _cuda_options(variant: Variant) -> dict[str, str]:
    """Of the CUDA provider."""
    flags = {"use_tf32": variant.flag("tf32"), "enable_cuda_graph": variant.flag("cuda_graph")}
    return {name: str(int(on)) for name, on in flags.items()} | ort_options.of_cuda(variant)


def _of_torch(winner: Winner) -> dict[str, Any]:
    """torch, eager or compiled, on the GPU where there is one."""
    spec, variant = winner.spec, winner.spot.variant
    on_gpu, compiled = winner.study.machine.gpu is not None, winner.spot.case.backend == "torch_compile"
    kernel = torch_options.SDPA.given(variant)
    kinds = winner.spec.inputs
    return {
        "file": None,
        "library": spec.source if spec.source in ("timm", "torchvision", "transformers") else None,
        "device": "cuda" if on_gpu else "cpu",
        "dtype": DTYPES[winner.spot.case.precision],
        "weights": spec.options.get("repository") if spec.source == "transformers" and spec.pretrained else None,
        "threads": winner.threads,
        "tf32": variant.flag("tf32"),
        "kernels": {name: name == kernel for name in torch_options.KERNELS} if kernel else {},
        "freezing": torch_options.FREEZING.given(variant),
        "module": _module(spec),
        "masks": inspect.getsource(register_whole_masks) if spec.source == "transformers" else None,
        "channels_last": torch_options.MEMORY_FORMAT.given(variant) == "channels_last",
        "mode": variant.text("compile_mode", DEFAULT_MODE) if compiled else None,
        "by_name": spec.source == "transformers",
        "pooling": spec.options.get("pooling"),
        "mask": next((item.name for item in kinds if item.data == "token_mask"), None),
        "graph": on_gpu and variant.flag("cuda_graph"),
    }


def _module(spec: ModelSpec) -> list[str]:
    """What makes the module."""
    name = spec.options.get("architecture")
    if spec.source == "timm":
        return [f'model = timm.create_model("{name}", pretrained={spec.pretrained})']
    if spec.source == "torchvision":
        weights = '"DEFAULT"' if spec.pretrained else None
        return [f'model = torchvision.models.get_model("{name}", weights={weights})']
    if spec.source == "transformers" and not spec.pretrained:
        return [
            f"config = transformers.{name}.config_class(**{dict(spec.options.get('config', {}))})",
            f'model = transformers.{name}._from_config(config, attn_implementation="sdpa")',
        ]
    if spec.source == "transformers":
        revision = f', revision="{spec.options["revision"]}"' if "revision" in spec.options else ""
        return [f'model = transformers.{name}.from_pretrained(WEIGHTS, attn_implementation="sdpa"{revision})']
    module, _, function = str(spec.options["python"]).partition(":")
    return [f"from {module} import {function}", f"model = {function}()"]


def _of_tensorrt(winner: Winner) -> dict[str, Any]:
    """TensorRT's engine, as its documentation runs it."""
    spot = winner.spot
    return {"module": spot.case.backend, "file": _engine(winner), "graph": spot.variant.flag("cuda_graph")}


def _engine(winner: Winner) -> str:
    return f"{winner.study.machine.slug}/engine/{winner.spot.case}.engine"


def _winner(study: Study, results: Path, trail: Trail) -> Winner:
    """The best case, and one of the records that its latency is from."""
    precision, backend, name, *shape = str(trail.best).split("/")
    home = str(trail.shape)
    spot = Spot(Case(str(trail.model), precision, backend, name, *(shape or [home])), study.variant(name), home)
    rounds = Rounds(results, study.machine.slug, trail.boundary, float(study.protocol["limit_s"]))
    begin = baseline(study, str(trail.model), str(trail.shape))
    record = rounds.record(spot, first_round(begin, spot, CONFIRM) + 1) or rounds.record(spot, 0)
    if record is None:
        raise UserError(
            f"--program: {trail.best} of {trail.model} at {trail.shape} was not measured: run the study first"
        )
    return Winner(study, trail, spot, record)


# --- the heading -----------------------------------------------------------------------------------------------


def title(trail: Trail) -> str:
    """What runs, and whether a search chose it."""
    if trail.ended is None:
        chosen = "the best so far of a search that has not ended" if trail.steps else "not chosen by a search"
    elif trail.best == trail.baseline:
        chosen = "the baseline, since a search confirmed nothing faster"
    else:
        chosen = "the fastest that a search confirmed"
    return f"{trail.model} at {trail.shape} as {trail.best}: {chosen}."


def heading(winner: Winner) -> Iterator[str]:
    """What was measured, on what."""
    trail, case = winner.trail, winner.spot.case
    items = f" for each of {winner.spot.batch} items" if trail.per == "item" else ""
    took = f"{trail.median_ns / NS_PER_MS:.4g} ms{items}" if trail.median_ns else "not measured"
    if trail.low_ns and trail.high_ns:
        low, high = (f"{ns / NS_PER_MS:.4g}" for ns in (trail.low_ns, trail.high_ns))
        took += f"; the median of one more process lies between {low} and {high} ms in 95 of 100"
    yield f"Measured by {trail.boundary}: {took}."
    last = last_duel(trail.steps)
    if last and last.gain is not None and last.low is not None and last.high is not None:
        yield f"Over {trail.baseline} it saves {last.gain:.1%} ({last.low:.1%} to {last.high:.1%}): {last.decision}."
    packages = winner.record.environment.packages
    versions = [f"{name} {packages[name]}" for name in PACKAGES[winner.family] if packages.get(name)]
    yield f"With Python {winner.record.environment.python}, {', '.join(versions)}, on {winner.study.machine.slug}."
    yield from _notes(winner, str(case.backend))


def _notes(winner: Winner, backend: str) -> Iterator[str]:
    """What the user of a program should know."""
    spec, options = winner.spec, winner.spot.variant.options
    if backend in UNPROVEN:
        yield "Unproven: written to the documented interface, and never run by us."
    if winner.family == "torch" and spec.source == "transformers":
        pretrained = "WEIGHTS: a repository of the hub, or a folder with its files."
        yield pretrained if spec.pretrained else "Its weights are random, as those that were measured."
    if options.get("placement") in ("device", "mapped"):
        yield f"Measured with its inputs in {options['placement']} memory; this program has them on the host."
    if others := sorted(options.keys() & {"host_cast", "tuning"}):
        given = " ".join(f"{name}={options[name]}" for name in others)
        yield f"Not in this program: {given}, which inferprof does around the model."


def flags_elsewhere(winner: Winner) -> Iterator[str]:
    """The same for onnxruntime_perf_test and trtexec, as far as these have it."""
    case, variant = winner.spot.case, winner.spot.variant
    sizes = Shape.parse(case.shape)
    if case.backend in ("ort_cpu", "ort_cuda", "ort_tensorrt") and "transformer_optimizer" not in variant.options:
        # It takes each symbol of the graph for 1 unless told otherwise.
        symbols = " ".join(f"-f {name}:{size}" for name, size in sizes.as_dict().items())
        yield f"onnxruntime_perf_test {' '.join(_perf_test(winner))} {symbols} -I {case.precision}.onnx"
    if case.backend == "tensorrt":
        shapes = ",".join(f"{i.name}:{'x'.join(map(str, i.shape(sizes)))}" for i in winner.spec.inputs)
        graph = " --useCudaGraph" if variant.flag("cuda_graph") else ""
        yield f"trtexec --loadEngine={case.precision}.engine --shapes={shapes}{graph}"


def _perf_test(winner: Winner) -> Iterator[str]:
    """The flags of onnxruntime_perf_test; what it lacks is left to its defaults."""
    case, variant = winner.spot.case, winner.spot.variant
    yield f"-e {case.backend.removeprefix('ort_')} -o {LEVELS[variant.text('graph_optimization', 'all')]}"
    if "threads" in variant.options:
        yield f"-x {variant.options['threads']}"
    if variant.options.get("memory_pattern") is False:
        yield "-M"
    if variant.options.get("arena") is False:
        yield "-A"
    if variant.text("execution", "sequential") == "parallel":
        yield "-P"
    entries = [f"{o.key}|{value}" for o in ort_options.ENTRIES if (value := o.given(variant)) is not None]
    if entries:
        yield f'-C "{" ".join(entries)}"'
    if case.backend == "ort_cpu":
        return
    profile = profile_of(winner.spec, Shape.parse(case.shape), variant)
    on_tensorrt = case.backend == "ort_tensorrt"
    given = (
        ort_tensorrt.of_provider(Path("engines"), profile, variant, None) if on_tensorrt else _cuda_options(variant)
    )
    yield f"""-i "{" ".join(f"{key}|{value}" for key, value in given.items())}\""""


def _session_lines(variant: Variant) -> Iterator[str]:
    for option in ort_options.SESSION:
        if (value := option.given(variant)) is not None:
            enum = ort_options.ENUMS.get(option.name)
            yield f"options.{option.key} = {f'ort.{enum}.{value}' if enum else value}"
    for option in ort_options.ENTRIES:
        if (value := option.given(variant)) is not None:
            yield f'options.add_session_config_entry("{option.key}", "{value}")'


def _arrays(arrays: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: (tuple(array.shape), array.dtype) for name, array in arrays.items()}


def _expression(item: InputSpec, record: Record) -> str:
    """What makes an input of the shape and type that was measured."""
    array = record.inputs[item.name]
    shape, dtype = tuple(array.shape), array.dtype
    if dtype.startswith("float"):
        return f'rng.standard_normal({shape}).astype("{dtype}")'
    if item.data == "token_mask" or dtype == "bool":
        return f'np.ones({shape}, "{dtype}")'
    if item.data == "tokens" or item.data.startswith("integers"):
        return f'rng.integers(1, 100, {shape}, "{dtype}")'
    return f'np.zeros({shape}, "{dtype}")'
