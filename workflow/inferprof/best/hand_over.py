"""The best case as a short program that needs no inferprof, with its latency and versions in the heading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from inferprof.backends import ort_options, torch_options
from inferprof.backends.inductor import DEFAULT_MODE
from inferprof.backends.torch import DTYPES
from inferprof.best.rounds import Rounds, first_round
from inferprof.best.space import Spot, baseline
from inferprof.case import Case, Shape, Variant
from inferprof.documents import Record, Trail
from inferprof.model.model_spec import InputSpec
from inferprof.study import Study

NS_PER_MS: Final = 1e6
PACKAGES: Final = {
    "ort": ("onnxruntime-gpu", "onnxruntime", "numpy"),
    "torch": ("torch", "transformers", "timm", "torchvision", "numpy"),
    "tensorrt": ("tensorrt", "torch", "numpy"),
}
SECONDS: Final = 2.0
"""For which a program measures itself."""
LOADERS: Final[Mapping[str, str]] = {
    "timm": "import timm",
    "torchvision": "import torchvision",
    "transformers": "import transformers",
}


class Program:
    """The parts of a program: imports, constants, and what prepares a run."""

    def __init__(self, study: Study, trail: Trail, spot: Spot, record: Record) -> None:
        self.study, self.trail, self.spot, self.record = study, trail, spot, record
        self.spec = study.models[spot.case.model]
        self.options = spot.variant
        self.imports = ["import os", "import statistics", "import time"]
        self.libraries = ["import numpy as np"]
        self.constants = [f"SECONDS = {SECONDS}"]
        self.notes: list[str] = []
        self.body: list[str] = []

    @property
    def threads(self) -> str:
        """How many threads, as code."""
        return str(self.options.options.get("threads", "len(os.sched_getaffinity(0))"))

    def ort(self, *, cuda: bool) -> None:
        """ONNX Runtime on the CPU, or on the GPU with its arrays bound to it."""
        self.imports.append("from pathlib import Path")
        self.libraries.append("import onnxruntime as ort")
        path = f'"onnx/{self.spec.name}/{self.spot.case.precision}.onnx"'
        self.constants.append(f"MODEL = Path(__file__).resolve().parents[2] / {path}")
        self.body = ["options = ort.SessionOptions()", f"options.intra_op_num_threads = {self.threads}"]
        self.body += list(_session_lines(self.options))
        if not cuda:
            self.body += [
                'session = ort.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])',
                "return lambda feeds: session.run(None, feeds)",
            ]
            return
        graph = self.options.flag("cuda_graph")
        provider = {"use_tf32": str(int(self.options.flag("tf32"))), "enable_cuda_graph": str(int(graph))}
        provider |= ort_options.of_cuda(self.options)
        self.constants.append(f"PROVIDER = {provider}")
        self.constants.append(f"OUTPUTS = {_arrays(self.record.outputs)}")
        self.body += [
            "ort.preload_dlls()  # the CUDA libraries that came with torch",
            'providers = [("CUDAExecutionProvider", PROVIDER), "CPUExecutionProvider"]',
            "session = ort.InferenceSession(MODEL, options, providers=providers)",
            "binding = session.io_binding()",
            'held = {name: ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0) for name, array in feeds.items()}',
            "for name, value in held.items():",
            "    binding.bind_ortvalue_input(name, value)",
            "for name, (shape, dtype) in OUTPUTS.items():",
            '    value = ort.OrtValue.ortvalue_from_shape_and_type(shape, np.dtype(dtype), "cuda", 0)',
            "    binding.bind_ortvalue_output(name, value)",
            "",
            "def run(feeds):",
            "    for name, array in feeds.items():",
            "        held[name].update_inplace(array)",
            "    session.run_with_iobinding(binding)",
            "    return binding.copy_outputs_to_cpu()",
            "",
            "return run",
        ]

    def torch(self, *, compiled: bool) -> None:
        """torch, eager or compiled, on the GPU where there is one."""
        self.libraries.append("import torch")
        where = "cpu" if self.study.machine.gpu is None else "cuda"
        dtype = DTYPES[self.spot.case.precision]
        self.constants += [f'DEVICE = "{where}"', f"DTYPE = torch.{dtype}"]
        self.body = [f"torch.set_num_threads({self.threads})"] if where == "cpu" else []
        self.body += list(_torch_lines(self.options))
        self.body += [*self._module(), "model = model.eval().to(DEVICE, DTYPE)"]
        channels_last = torch_options.MEMORY_FORMAT.given(self.options) == "channels_last"
        if channels_last:
            self.body.append("model = model.to(memory_format=torch.channels_last)")
        if compiled:
            mode = self.options.text("compile_mode", DEFAULT_MODE)
            self.body.append(f'model = torch.compile(model, mode="{mode}", dynamic=False)')
        last = ".to(memory_format=torch.channels_last) if x.ndim == 4 else x" if channels_last else ""
        call = "**tensors" if self.spec.source == "transformers" else "*tensors.values()"
        if self.options.flag("cuda_graph"):
            self.notes.append("Measured as a CUDA graph; this program runs it without (torch.cuda.graph holds it).")
        self.body += [
            "",
            "@torch.inference_mode()",
            "def run(feeds):",
            "    tensors = {name: torch.from_numpy(array).to(DEVICE) for name, array in feeds.items()}",
            "    tensors = {name: x.to(DTYPE) if x.is_floating_point() else x for name, x in tensors.items()}",
            *([f"    tensors = {{name: x{last} for name, x in tensors.items()}}"] if last else []),
            f"    result = model({call})",
            "    result = next(iter(result.values())) if isinstance(result, dict) else result",
            *self._pooled(),
            "    return [result.float().cpu().numpy()]",
            "",
            "return run",
        ]

    def _module(self) -> list[str]:
        """What makes the module."""
        source, options = self.spec.source, self.spec.options
        if source in LOADERS:
            self.libraries.append(LOADERS[source])
        name = options.get("architecture")
        if source == "timm":
            return [f'model = timm.create_model("{name}", pretrained={self.spec.pretrained})']
        if source == "torchvision":
            weights = '"DEFAULT"' if self.spec.pretrained else None
            return [f'model = torchvision.models.get_model("{name}", weights={weights})']
        if source == "transformers" and not self.spec.pretrained:
            self.notes.append("Its weights are random, as those that were measured.")
            return [
                f"config = transformers.{name}.config_class(**{dict(options.get('config', {}))})",
                f'model = transformers.{name}._from_config(config, attn_implementation="sdpa")',
            ]
        if source == "transformers":
            self.notes.append("WEIGHTS: a repository of the hub, or a folder with its files.")
            self.constants.append(f'WEIGHTS = os.environ.get("WEIGHTS", "{options.get("repository", "")}")')
            revision = f', revision="{options["revision"]}"' if "revision" in options else ""
            return [f'model = transformers.{name}.from_pretrained(WEIGHTS, attn_implementation="sdpa"{revision})']
        module, _, function = str(options["python"]).partition(":")
        self.notes.append(f"{module}.py must be importable: it stands beside the model's description.")
        return [f"from {module} import {function}", f"model = {function}()"]

    def _pooled(self) -> Iterator[str]:
        """A unit vector for each row, where the model's description asks for it."""
        pooling = self.spec.options.get("pooling")
        if not pooling:
            return
        mask = next((item.name for item in self.spec.inputs if item.data == "token_mask"), None)
        if pooling == "cls":
            yield "    result = result[:, 0]"
        elif mask:
            yield f'    mask = tensors["{mask}"].unsqueeze(-1).to(result.dtype)'
            yield "    result = (result * mask).sum(1) / mask.sum(1).clamp(min=1)"
        else:
            yield "    result = result.mean(1)"
        yield "    result = torch.nn.functional.normalize(result, dim=-1, eps=1e-6)"

    def tensorrt(self) -> None:
        """TensorRT's engine, as its documentation runs it. No machine of ours ran this program."""
        self.notes.append("Unproven: written to TensorRT's documented interface, and never run by us.")
        self.imports.append("from pathlib import Path")
        self.libraries += ["import tensorrt as trt", "import torch"]
        engine = f'"engine/{self.spot.case}.engine"'
        self.constants.append(f"ENGINE = Path(__file__).resolve().parents[1] / {engine}")
        self.body = [
            "runtime = trt.Runtime(trt.Logger())",
            "engine = runtime.deserialize_cuda_engine(ENGINE.read_bytes())",
            "context = engine.create_execution_context()",
            'tensors = {name: torch.from_numpy(array).to("cuda") for name, array in feeds.items()}',
            "for name, tensor in tensors.items():",
            "    context.set_input_shape(name, tuple(tensor.shape))",
            "names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]",
            "outputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT]",
            "for name in outputs:",
            "    dtype = torch.from_numpy(np.empty(0, trt.nptype(engine.get_tensor_dtype(name)))).dtype",
            '    tensors[name] = torch.empty(tuple(context.get_tensor_shape(name)), dtype=dtype, device="cuda")',
            "for name, tensor in tensors.items():",
            "    context.set_tensor_address(name, tensor.data_ptr())",
            "stream = torch.cuda.Stream()",
            "",
            "def run(feeds):",
            "    with torch.cuda.stream(stream):",
            "        for name, array in feeds.items():",
            "            tensors[name].copy_(torch.from_numpy(array))",
            "        context.execute_async_v3(stream.cuda_stream)",
            "        return [tensors[name].cpu().numpy() for name in outputs]",
            "",
            "return run",
        ]

    def by_hand(self) -> None:
        """What no program is written for."""
        given = " ".join(f"--set {name}={value}" for name, value in self.options.options.items())
        self.notes.append(
            f"No program is written for {self.spot.case.backend}: inferprof runs it with {given or 'no option'}."
        )
        self.body = [f'raise SystemExit("no program is written for {self.spot.case.backend}")']


def program(study: Study, results: Path, trail: Trail) -> str:
    """The program of the best case that a search found."""
    import jinja2

    if trail.ended == "failed":
        return f"raise SystemExit({trail.reason!r})\n"
    spot, record = _winner(study, results, trail)
    made = Program(study, trail, spot, record)
    backend = spot.case.backend
    if backend in ("ort_cpu", "ort_cuda"):
        made.ort(cuda=backend == "ort_cuda")
    elif backend in ("torch_eager", "torch_compile"):
        made.torch(compiled=backend == "torch_compile")
    elif backend == "tensorrt":
        made.tensorrt()
    else:
        made.by_hand()
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("inferprof.best"),
        autoescape=False,  # Python, and no page
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    text = environment.get_template("program.py.j2").render(
        model=trail.model,
        shape=trail.shape,
        best=trail.best,
        heading=[*heading(made), *flags_elsewhere(made)],
        imports=[
            *sorted(made.imports, key=lambda line: (line.startswith("from"), line)),
            "",
            *sorted(made.libraries),
        ],
        constants=made.constants,
        inputs={item.name: _expression(item, record) for item in made.spec.inputs},
        body=made.body,
    )
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _winner(study: Study, results: Path, trail: Trail) -> tuple[Spot, Record]:
    """The best case, and one of the records that its latency is from."""
    precision, backend, name = str(trail.best).split("/")
    spot = Spot(Case(str(trail.model), precision, backend, name, str(trail.shape)), study.variant(name))
    rounds = Rounds(results, study.machine.slug, trail.boundary, float(study.protocol["limit_s"]))
    begin = baseline(study, str(trail.model), str(trail.shape))
    record = rounds.record(spot, first_round(begin, spot, "confirm") + 1) or rounds.record(spot, 0)
    assert record is not None  # it is the best by these very records
    return spot, record


def heading(made: Program) -> Iterator[str]:
    """What was measured, on what."""
    trail = made.trail
    median, low, high = ((ns or 0) / NS_PER_MS for ns in (trail.median_ns, trail.low_ns, trail.high_ns))
    yield f"Measured by {trail.boundary}: {median:.4g} ms" + (
        f"; the median of one more process lies between {low:.4g} and {high:.4g} ms in 95 of 100." if high else "."
    )
    last = next((step for step in trail.steps if step.decision in ("confirmed", "not confirmed")), None)
    if last and last.gain is not None and last.low is not None and last.high is not None:
        yield f"Over {trail.baseline} it saves {last.gain:.1%} ({last.low:.1%} to {last.high:.1%}): {last.decision}."
    family = next((name for name in PACKAGES if made.spot.case.backend.startswith(name)), "ort")
    packages = made.record.environment.packages
    versions = [f"{name} {packages[name]}" for name in PACKAGES[family] if packages.get(name)]
    yield f"With Python {made.record.environment.python}, {', '.join(versions)}, on {made.study.machine.slug}."
    yield from made.notes


def flags_elsewhere(made: Program) -> Iterator[str]:
    """The same for onnxruntime_perf_test and trtexec, as far as these have it."""
    case, options = made.spot.case, made.options
    if case.backend == "ort_cpu" and isinstance(options.options.get("threads", 0), int):
        threads = f" -x {options.options['threads']}" if "threads" in options.options else ""
        level = {"disabled": 0, "basic": 1, "extended": 2, "all": 99}[options.text("graph_optimization", "all")]
        rest = "" if options.options.get("memory_pattern", True) else " -M"
        rest += "" if options.options.get("arena", True) else " -A"
        rest += " -P" if options.text("execution", "sequential") == "parallel" else ""
        entries = [f"{o.key}|{value}" for o in ort_options.ENTRIES if (value := o.given(options)) is not None]
        rest += f' -C "{" ".join(entries)}"' if entries else ""
        yield f"onnxruntime_perf_test -e cpu -o {level}{threads}{rest} -I {case.precision}.onnx"
    if case.backend == "tensorrt":
        sizes = Shape.parse(case.shape)
        shapes = ",".join(f"{i.name}:{'x'.join(map(str, i.shape(sizes)))}" for i in made.spec.inputs)
        graph = " --useCudaGraph" if options.flag("cuda_graph") else ""
        yield f"trtexec --loadEngine={case.precision}.engine --shapes={shapes}{graph}"


def _session_lines(variant: Variant) -> Iterator[str]:
    for option in ort_options.SESSION:
        if (value := option.given(variant)) is not None:
            enum = ort_options.ENUMS.get(option.name)
            yield f"options.{option.key} = {f'ort.{enum}.{value}' if enum else value}"
    for option in ort_options.ENTRIES:
        if (value := option.given(variant)) is not None:
            yield f'options.add_session_config_entry("{option.key}", "{value}")'


def _torch_lines(variant: Variant) -> Iterator[str]:
    if variant.flag("tf32"):
        yield 'torch.set_float32_matmul_precision("high")'
        yield "torch.backends.cudnn.allow_tf32 = True"
    if kernel := torch_options.SDPA.given(variant):
        for each in torch_options.KERNELS:
            yield f"torch.backends.cuda.{torch_options.SDPA.key.format(each)}({each == kernel})"
    if torch_options.FREEZING.given(variant):
        yield "import torch._inductor.config"
        yield "torch._inductor.config.freezing = True"


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
    if item.data in ("tokens",) or item.data.startswith("integers"):
        return f'rng.integers(1, 100, {shape}, "{dtype}")'
    return f'np.zeros({shape}, "{dtype}")'
