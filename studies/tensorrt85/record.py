"""Measure study.yaml, which no one Python can: Snakemake needs 3.11, and TensorRT 8.5 needs 3.10. See README.md.

record.py prepare FOLDER    with .venv: the graphs, what they must give and what they cost
record.py measure FOLDER    with Python 3.10 on a GPU: engines, records, captures; what is there is not made again
record.py bundle FOLDER     with .venv: tables and the bundle
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import yaml

from inferprof import planning, registry, targets
from inferprof import study as studies
from inferprof.case import EXCLUDED, Case
from inferprof.files import write_json, write_text
from inferprof.machine import hardware
from inferprof.machine.hardware import Machine

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
RESULTS = Path("results")
OPSETS = (16, 17)
IR_VERSION = 8
"""The newest that ONNX Runtime 1.14 reads."""
ENCODER = """source: onnx
onnx: {name}.onnx
inputs:
  - {{name: input_ids, dtype: int32, dims: [b, s], data: "integers:30522"}}
  - {{name: attention_mask, dtype: int32, dims: [b, s], data: "constant:1"}}
  - {{name: token_type_ids, dtype: int32, dims: [b, s], data: zeros}}
sizes: {{s: 128}}
max_sizes: {{s: 512}}
"""
"""TensorRT 8.5 has no int64, so the inputs are not those of models/bert_tiny.yaml."""
STUDY = "tensorrt85"
INFERPROF = (sys.executable, "-m", "inferprof")


# --- the study -------------------------------------------------------------------------------------------------


def planned(machine: Machine | None = None) -> studies.Study:
    """The study of the folder that the process is in, with every case that study.yaml does not exclude.

    Also those that the product refuses: TensorRT 8.5 is below its floor, and only here it is asked nevertheless.
    """
    config = yaml.safe_load((HERE / "study.yaml").read_text(encoding="utf-8"))
    study = studies.plan(config, Path("models"), machine or hardware.detect())
    asked = [one if one.reason.startswith(EXCLUDED) else planning.Planned(one.case, "run") for one in study.planned]
    return replace(study, planned=asked)


# --- steps -----------------------------------------------------------------------------------------------------


def prepare() -> None:
    """Models and graphs, by Snakemake's own rules."""
    models = Path("models")
    shutil.copytree(REPOSITORY / "models" / "data", models / "data", dirs_exist_ok=True)
    detector(models)
    for opset in OPSETS:
        name = f"bert_tiny_opset{opset}"
        export(opset, models / f"{name}.onnx")
        with_shapes(models / f"{name}.onnx")
        write_text(models / f"{name}.yaml", ENCODER.format(name=name))
    study = planned()
    graphs = dict.fromkeys((case.model, case.precision) for case in study.cases())
    shapes = dict.fromkeys((case.model, case.precision, case.shape) for case in study.cases())
    files = [f"results/onnx/{m}/{p}.{kind}.json" for m, p in graphs for kind in ("convert", "audit", "accuracy")]
    files += [f"results/onnx/{m}/{p}.{s}.{what}" for m, p, s in shapes for what in ("cost.json", "expected.npz")]
    snakemake = ["snakemake", "--snakefile", str(REPOSITORY / "Snakefile"), "--cores", str(os.cpu_count())]
    subprocess.run([*snakemake, "--configfile", str(HERE / "study.yaml"), "--", *files], check=True)


def detector(models: Path) -> None:
    """models/detector.yaml's file, said to be of an older version: its operators are of opset 11."""
    import onnx

    from inferprof.model import model_spec

    path = REPOSITORY / "models" / "detector.yaml"
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    model = onnx.load(str(model_spec.load(path).onnx_path))
    model.ir_version = IR_VERSION
    onnx.save(model, str(models / "detector.onnx"))
    kept = {key: value for key, value in content.items() if key not in ("package", "sha256")}
    write_text(models / "detector.yaml", yaml.safe_dump(kept | {"onnx": "detector.onnx"}, sort_keys=False))


def export(opset: int, out: Path) -> None:
    """models/bert_tiny.yaml by torch's older exporter, which knows opsets that TensorRT 8.5 parses."""
    import torch

    from inferprof.model import model_spec, torch_source

    module = torch_source.load(model_spec.load(REPOSITORY / "models" / "bert_tiny.yaml"), "eager").module
    names = ["input_ids", "attention_mask", "token_type_ids"]
    torch.onnx.export(
        module,
        tuple(torch.ones(2, 16, dtype=torch.int32) for _ in names),
        str(out),
        dynamo=False,
        opset_version=opset,
        input_names=names,
        output_names=["embedding"],
        dynamic_axes={"embedding": {0: "b"}, **{name: {0: "b", 1: "s"} for name in names}},
    )


def with_shapes(path: Path) -> None:
    """Say each tensor's shape: ONNX Runtime's provider refuses to split a graph where one is not known."""
    import onnx
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    onnx.save(SymbolicShapeInference.infer_shapes(onnx.load(str(path)), auto_merge=True), str(path))


def measure(until: float, side_by_side: int) -> None:
    """Everything that needs the GPU: engines beside each other, then one thing after another."""
    study = planned()
    machine = RESULTS / study.machine.slug
    report = RESULTS / "reports" / study.name
    write_text(report / "cases.csv", studies.cases_csv(study))
    write_json(report / "config.json", dict(study.config))
    write_json(report / "profilers.json", {})
    for verb, name in (("probe", "environment"), ("bandwidth", "bandwidth"), ("ceilings", "ceilings")):
        run(job([verb], machine / f"{name}.json"), until)
    engines = {one.out: one for one in (built(study, case) for case in study.cases() if targets.has_engine(case))}
    with ThreadPoolExecutor(side_by_side) as pool:
        list(pool.map(partial(run, until=until), engines.values()))
    for round_ in study.rounds:
        for case in sorted(study.cases(), key=lambda case: -studies.priority(case, round_, 0)):
            run(measured(study, case, round_), until)
        if round_ == 0:
            for profiler, case in study.captures():
                run(captured(study, profiler, case), until)


def bundle() -> None:
    """Tables of what was captured, and the bundle."""
    for path in sorted(RESULTS.glob("*/capture/*/*/*/*/*/*")):
        machine, _, profiler, *case = path.relative_to(RESULTS).parts
        if path.name == case[-1].partition(".")[0] + registry.profilers()[profiler].suffix:
            table = Path(RESULTS, machine, "table", profiler, *case[:-1], path.name.partition(".")[0] + ".parquet")
            run(job(["table", profiler, str(path), "--machine", machine], table), math.inf)
    (probed,) = RESULTS.glob("*/environment.json")
    subprocess.run([*INFERPROF, "bundle", "results", "--study", STUDY, "--machine", probed.parent.name], check=True)


# --- jobs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A command and the file that it writes."""

    command: Sequence[str]
    out: Path

    @property
    def log(self) -> Path:
        """Where its output goes: results/log/, by the path of its file."""
        return (RESULTS / "log" / self.out.relative_to(RESULTS)).with_suffix(".log")


def job(words: Sequence[str], out: Path, watched: Sequence[str] = ()) -> Job:
    """A verb of inferprof with its words; behind `--` the run that it watches."""
    behind = ["--", *watched] if watched else []
    return Job([*INFERPROF, *words, "--out", str(out), *behind], out)


def run(job: Job, until: float) -> None:
    """Run a job whose file is not there yet, and say how it went. After `until` (monotonic seconds) none begins."""
    if job.out.exists() or time.monotonic() > until:
        return
    for path in (job.out, job.log):
        path.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with job.log.open("w") as file:
        code = subprocess.run(job.command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    sys.stderr.write(f"{job.out.relative_to(RESULTS)}: exit code {code} after {time.monotonic() - started:.0f} s\n")


def built(study: studies.Study, case: Case) -> Job:
    """The build of a case's engine: ONNX Runtime's by the product, TensorRT's by build_engine.py."""
    out = engine(study, case)
    words = [str(onnx(case)), "--spec", f"models/{case.model}.yaml", "--shape", case.shape]
    if case.backend != "tensorrt":
        return job(["build", case.backend, *words, "--variant", case.variant], out)
    profile = study.variants[case.variant].options.get("profile")
    serves = ["--profile", *map(str, profile)] if isinstance(profile, list) else []
    script = [sys.executable, str(HERE / "build_engine.py"), *words, "--precision", case.precision, *serves]
    return Job([*script, "--out", str(out)], out)


def measured(study: studies.Study, case: Case, round_: int) -> Job:
    """One round of a case, as the rule `benchmark` has it."""
    reference = ["--reference", str(onnx(case).with_suffix(f".{case.shape}.expected.npz"))]
    protocol = targets.protocol_flags(study, round_).split()
    out = RESULTS / study.machine.slug / "benchmark" / str(case) / f"r{round_}.json"
    return job([*run_words(study, case), *reference, "--round", str(round_), *protocol], out)


def captured(study: studies.Study, profiler: str, case: Case) -> Job:
    """A case under a profiler, as the rules of captures.smk have it."""
    tool = registry.profilers()[profiler]
    stem = RESULTS / study.machine.slug / "capture" / profiler / str(case)
    record = stem.with_name(f"{stem.name}.record.json")
    seen = job([*run_words(study, case), "--profiled", str(tool.iterations)], record)
    return job(["capture", profiler, "--record", str(record)], stem.with_name(stem.name + tool.suffix), seen.command)


def run_words(study: studies.Study, case: Case) -> list[str]:
    """`run` of a case, with all that says which one it is."""
    artifact = engine(study, case) if targets.has_engine(case) else onnx(case)
    options = shlex.split(targets.flags(study.variants[case.variant].options))
    named = ["--precision", case.precision, "--shape", case.shape, "--variant", case.variant, *options]
    spec = ["--spec", f"models/{case.model}.yaml", "--machine", study.machine.slug]
    return ["run", case.backend, str(artifact), *spec, *named]


def onnx(case: Case) -> Path:
    """The graph of a case."""
    return RESULTS / "onnx" / case.model / f"{case.precision}.onnx"


def engine(study: studies.Study, case: Case) -> Path:
    """The engine of a case. A CUDA graph is an option of the run: its engine is the default's."""
    builds = "default" if study.variants[case.variant].flag("cuda_graph") else case.variant
    return RESULTS / study.machine.slug / "engine" / f"{replace(case, variant=builds)}.engine"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "measure", "bundle"))
    parser.add_argument("folder", type=Path, help="where models/ and results/ are")
    parser.add_argument("--minutes", type=float, default=60, help="measure: after so many nothing new begins")
    parser.add_argument("--builds", type=int, default=1, help="measure: engines that are built beside each other")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(args.folder)
    if args.step == "measure":
        measure(time.monotonic() + 60 * args.minutes, args.builds)
    else:
        {"prepare": prepare, "bundle": bundle}[args.step]()


if __name__ == "__main__":
    main()
