"""The flags of each verb of the command line: one function per verb, and those that verbs share."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from inferprof import flag_values
from inferprof.case import REFERENCE, THRESHOLD
from inferprof.plugins import BOUNDARIES


def probe(sub: argparse.ArgumentParser) -> None:
    """What to call the machine."""
    sub.add_argument("--label", help="a name for the machine (default: a slug of GPU, driver and library versions)")
    out(sub)


def cases(sub: argparse.ArgumentParser) -> None:
    """A config, and the models that it names."""
    sub.add_argument("--config", required=True, help="a YAML file, or the config itself as JSON")
    sub.add_argument("--models", type=Path, default=Path("models"), help="folder of the models")
    where = sub.add_mutually_exclusive_group()
    where.add_argument("--machine", metavar="LABEL", help="which of the config's machines (default: the first)")
    where.add_argument("--target", type=flag_values.capability, metavar="CC", help="or any GPU's, 10.0 for a B200")
    sub.add_argument("--for-report", action="store_true", help="beside --out also config.json and profilers.json")
    sub.add_argument("--out", type=Path, metavar="FILE", help="CSV: each case, whether it runs, or why not")


def export(sub: argparse.ArgumentParser) -> None:
    """A model's description."""
    sub.add_argument("spec", type=Path, metavar="SPEC", help="models/NAME.yaml, or a bare models/NAME.onnx")
    out(sub)


def quantize(sub: argparse.ArgumentParser) -> None:
    """A number format and the fp32 graph."""
    sub.add_argument("precision", metavar="PRECISION", help="a number format, e.g. int8")
    sub.add_argument("onnx", type=Path, metavar="ONNX", help="the model's fp32 ONNX")
    _converted(sub)
    out(sub)


def audit(sub: argparse.ArgumentParser) -> None:
    """A graph, and what it claims to be."""
    sub.add_argument("onnx", type=Path, metavar="ONNX", help="any ONNX file")
    sub.add_argument("--precision", help="the number format that the graph claims to be in")
    _sizes_and_out(sub)


def partition(sub: argparse.ArgumentParser) -> None:
    """A graph, and the sizes to ask about beside the open ones."""
    sub.add_argument("onnx", type=Path, metavar="ONNX", help="any ONNX file")
    _sizes_and_out(sub)


def cost(sub: argparse.ArgumentParser) -> None:
    """A graph and the shape to count at."""
    sub.add_argument("onnx", type=Path, metavar="ONNX", help="the graph in its number format")
    sub.add_argument("--spec", type=Path, help="models/NAME.yaml (default: what ONNX says of itself)")
    sub.add_argument("--shape", required=True, help="b8, b8_s128")
    out(sub, required=False)


def expect(sub: argparse.ArgumentParser) -> None:
    """A graph, and the inputs that its outputs are wanted for."""
    sub.add_argument("onnx", type=Path, metavar="ONNX", help="the graph in its number format, or a model without one")
    _model(sub)
    sub.add_argument(
        "--shape", help="b8, b8_s128; with --samples: gives sizes to the symbols that SPEC gives none to"
    )
    sub.add_argument(
        "--samples", type=flag_values.whole(2), metavar="N", help="of N real inputs, for `accuracy --reference`"
    )
    sub.add_argument("--seed", type=flag_values.whole(0), default=0, help="which inputs (default 0)")
    out(sub)


def accuracy(sub: argparse.ArgumentParser) -> None:
    """A converted graph and the one that it is compared with."""
    sub.add_argument("precision", metavar="PRECISION", help="the number format of ONNX, e.g. int8")
    sub.add_argument("onnx", type=Path, metavar="ONNX", help="the converted graph")
    sub.add_argument("--reference", type=Path, required=True, help="the fp32 graph, or its `expect --samples`")
    _converted(sub)
    sub.add_argument("--samples", type=flag_values.whole(2), default=64, help="inputs to compare on (default 64)")
    sub.add_argument("--seed", type=flag_values.whole(0), default=0, help="which inputs (default 0)")
    out(sub, required=False)


def sensitivity(sub: argparse.ArgumentParser) -> None:
    """A number format and the fp32 graph to rank the nodes of."""
    sub.add_argument("precision", metavar="PRECISION", help="a number format that is made of ONNX, e.g. int8, fp16")
    sub.add_argument("onnx", type=Path, metavar="ONNX", help="the model's fp32 ONNX")
    _converted(sub)
    sub.add_argument("--samples", type=flag_values.whole(1), help="calibration inputs (default: what it needs)")
    sub.add_argument("--out", type=Path, metavar="FILE", help="write it there, too")


def build(sub: argparse.ArgumentParser) -> None:
    """A graph, a shape and the builder's options."""
    sub.add_argument("backend", metavar="BACKEND", help="a runtime that builds engines, e.g. tensorrt")
    sub.add_argument("onnx", type=Path, metavar="ONNX", help="the graph in its number format")
    _model(sub)
    sub.add_argument("--shape", required=True, help="b8, b8_s128")
    _variant(sub)
    _set(sub, "an option of the builder")
    sub.add_argument(
        "--target", type=flag_values.capability, metavar="CC", help="compute capability of another GPU, e.g. 12.0"
    )
    out(sub)


def trtexec(sub: argparse.ArgumentParser) -> None:
    """An engine, and the record of a run of it."""
    sub.add_argument("engine", type=Path, metavar="ENGINE", help="an engine of the backend tensorrt")
    _model(sub)
    sub.add_argument("--record", type=Path, required=True, metavar="FILE", help="a run's record: shape, CUDA graph")
    out(sub)


def capture(sub: argparse.ArgumentParser) -> None:
    """A profiler, and the command to watch."""
    sub.add_argument("profiler", metavar="PROFILER", help="the profiler, e.g. nsys")
    out(sub)
    sub.add_argument(
        "--timeline", type=Path, nargs="?", metavar="TABLE", help="for ncu: nsys' table, names the kernels"
    )
    sub.add_argument("--record", type=Path, metavar="FILE", help="the run's record, if the tool ends it: why")
    # Not REMAINDER, which would take --out too.
    sub.add_argument("command", nargs="+", metavar="-- COMMAND", help="the run to watch, after --")


def table(sub: argparse.ArgumentParser) -> None:
    """A capture and the tool that made it."""
    sub.add_argument("tool", metavar="TOOL", help="the profiler that made the capture")
    sub.add_argument(
        "capture",
        type=Path,
        metavar="CAPTURE",
        help="…/capture/TOOL/MODEL/PRECISION/BACKEND/VARIANT/SHAPE.* names its case",
    )
    sub.add_argument("--machine", default="unknown", help="slug of the machine that made the capture")
    sub.add_argument("--iteration", metavar="RANGE", help="another program's range around an inference")
    out(sub)


def formats(sub: argparse.ArgumentParser) -> None:
    """A table of kernels, and the number format that was asked for."""
    sub.add_argument("table", type=Path, metavar="TABLE", help="of nsys, kineto, ort_nodes or trt_nodes, one case")
    sub.add_argument("--asked", metavar="PRECISION", help="the number format asked for (default: the table's case)")
    sub.add_argument("--ncu", type=Path, metavar="TABLE", help="ncu's table of the same case: its counters decide")
    sub.add_argument(
        "--at-least",
        type=flag_values.above_0(1),
        metavar="SHARE",
        help="exit code 1 if a smaller share of the matrix products ran in it",
    )


def diagnose(sub: argparse.ArgumentParser) -> None:
    """A case in a results folder, or all of a model."""
    sub.add_argument("results", type=Path, metavar="RESULTS", help="the results folder")
    sub.add_argument("--machine", required=True, help="slug of the machine: its folder in RESULTS")
    which = sub.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--case", type=flag_values.case, metavar="MODEL/PRECISION/BACKEND/VARIANT/SHAPE", help="one case"
    )
    which.add_argument("--model", help="all cases of a model that have a record; --out is then a folder")
    _set(sub, "a threshold of a check")
    out(sub)


def report(sub: argparse.ArgumentParser) -> None:
    """A results folder and the study in it."""
    _study(sub)
    sub.add_argument(
        "--machine",
        required=True,
        nargs="+",
        metavar="MACHINE",
        help="the machine's folder in RESULTS; several are compared, each with its own RESULTS/reports/STUDY/MACHINE",
    )
    sub.add_argument(
        "--plots", choices=(".svg", ".png"), default=".svg", help="the kind of the files in plots/ (default .svg)"
    )
    sub.add_argument("--partial", action="store_true", help="only what exists, into REPORT.partial.txt")
    sub.add_argument("--so-far", type=flag_values.name, metavar="NAME", help="what exists so far: REPORT.NAME.txt")
    sub.add_argument(
        "--processes",
        type=flag_values.whole(1),
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="processes that diagnose and draw, this one included (default: one per usable core)",
    )


def select(sub: argparse.ArgumentParser) -> None:
    """A results folder and the study in it."""
    _study_on(sub)
    out(sub)


def bundle(sub: argparse.ArgumentParser) -> None:
    """A results folder and the study in it, where the bundle goes, and how large it may be."""
    _study_on(sub)
    sub.add_argument(
        "--out", type=Path, metavar="FILE", help="the bundle (default RESULTS/reports/STUDY/MACHINE.bundle.zip)"
    )
    sub.add_argument(
        "--max-size",
        type=flag_values.size,
        metavar="SIZE",
        help="5M: captures are left out, largest first, then logs, to fit",
    )


def unbundle(sub: argparse.ArgumentParser) -> None:
    """A bundle, and the folder that it becomes."""
    sub.add_argument("bundle", type=Path, metavar="BUNDLE", help="what `inferprof bundle` wrote")
    sub.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="a new results folder")
    sub.add_argument("--report", action="store_true", help="also diagnose its cases again and write its report")


def compare(sub: argparse.ArgumentParser) -> None:
    """Two results folders."""
    sub.add_argument("a", type=Path, metavar="A", help="a results folder, results/MACHINE, or a bundle or tar of one")
    sub.add_argument("b", type=Path, metavar="B", help="the same; the verdicts are about this one")
    sub.add_argument(
        "--threshold",
        type=flag_values.above_0(1),
        default=THRESHOLD,
        help=f"relative difference that matters (default {THRESHOLD})",
    )
    sub.add_argument(
        "--allow-missing", action="store_true", help="pass although B lacks cases that A measured (a smaller study)"
    )
    strict = "exit code 3 if an undecided case may be slower by more than the threshold, by its interval"
    sub.add_argument("--strict", action="store_true", help=strict)
    sub.add_argument("--changed-options", action="store_true", help="compare cases whose options differ, too")
    sub.add_argument("--variants", nargs=2, metavar=("OF_A", "OF_B"), help="compare these variants' cases alone")


def none(sub: argparse.ArgumentParser) -> None:
    """The verb takes none."""


def run(sub: argparse.ArgumentParser) -> None:
    """The flags of the one workload."""
    sub.add_argument("backend", metavar="BACKEND", help="a runtime, e.g. ort_cpu")
    sub.add_argument(
        "artifact", type=Path, metavar="ARTIFACT", help="the .onnx or .engine; for torch the model's YAML"
    )
    sub.add_argument("--shape", required=True, help="b8, b8_s128")
    of_sessions(sub)
    sub.add_argument(
        "--hosts",
        type=flag_values.whole(1),
        default=1,
        help="nodes of this Slurm job for the ranks of the case (default 1)",
    )
    sub.add_argument(
        "--round", type=flag_values.whole(0), default=0, help="which of the case's processes this is (default 0)"
    )
    sub.add_argument("--budget", type=flag_values.above_0(), default=2.0, help="seconds per boundary (default 2)")
    sub.add_argument(
        "--interval",
        type=flag_values.above_0(1),
        default=0.01,
        help="relative half width of the median to stop at (default 0.01)",
    )
    sub.add_argument("--first-pass", action="store_true", help="brief: half the budget, no pipeline, no energy")
    sub.add_argument("--only", choices=BOUNDARIES, help="measure this boundary alone, no stages and no throughput")
    sub.add_argument("--quiet-core", action="store_true", help="with a GPU: launch from the core that is fastest now")
    sub.add_argument("--seed", type=flag_values.whole(0), default=0, help="which inputs (default 0)")
    sub.add_argument(
        "--reference", type=Path, metavar="FILE", help="what the outputs must agree with: of `expect`, or a graph"
    )
    sub.add_argument(
        "--tuned", type=Path, nargs="?", metavar="RECORD", help="use the choices of this record's autotuners"
    )
    sub.add_argument(
        "--profiled",
        type=flag_values.whole(1),
        metavar="N",
        help="no measurement: N iterations for a profiler to watch",
    )
    sub.add_argument("--kineto", type=Path, metavar="FILE", help="with --profiled: write a trace of torch.profiler")
    sub.add_argument("--modules", action="store_true", help="with --kineto: a range around each module of torch")
    sub.add_argument("--native-profile", type=Path, metavar="FILE", help="with --profiled: the runtime's own profile")
    out(sub)


def of_sessions(sub: argparse.ArgumentParser) -> None:
    """What an artifact is, and where it runs: of one run, or of all that a server has."""
    _model(sub)
    sub.add_argument("--precision", default=REFERENCE, help="the number format of ARTIFACT (default fp32)")
    _variant(sub)
    _set(sub, "an option of the variant")
    sub.add_argument("--machine", help="slug to record (default: this machine's)")
    sub.add_argument("--probed", type=Path, metavar="FILE", help="environment.json that this machine must match")


def _study(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("results", type=Path, metavar="RESULTS", help="the results folder")
    sub.add_argument("--study", required=True, type=flag_values.study, help="its folder is RESULTS/reports/STUDY")
    sub.add_argument(
        "--baseline", type=flag_values.baseline, metavar="PRECISION/BACKEND/VARIANT", help="reference of speed-ups"
    )


def _study_on(sub: argparse.ArgumentParser) -> None:
    _study(sub)
    sub.add_argument("--machine", required=True, help="slug of the machine: its folder in RESULTS")


def _sizes_and_out(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--spec", type=Path, help="models/NAME.yaml: the sizes that --shape leaves out")
    sub.add_argument("--shape", help="at which shape: b8, b8_s128 (default with --spec: b1)")
    out(sub, required=False)


def _converted(sub: argparse.ArgumentParser) -> None:
    _model(sub)
    sub.add_argument("--shape", help="gives sizes to the symbols that SPEC gives none to, as in b1_s128")
    _set(sub, "an option of the number format")


def _model(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--spec", type=Path, required=True, help="models/NAME.yaml, or a bare models/NAME.onnx")


def _variant(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--variant", default="default", help="name of the set of options (default default)")


def _set(sub: argparse.ArgumentParser, what: str) -> None:
    sub.add_argument("--set", type=flag_values.option, action="append", default=[], metavar="NAME=VALUE", help=what)


def out(sub: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Where the result goes; to the screen without it, where it is not required."""
    what = "where the result goes" if required else "write JSON there instead of to the screen"
    sub.add_argument("--out", type=Path, required=required, metavar="FILE", help=what)
