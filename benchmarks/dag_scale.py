"""Plans a study of 2,000 cases on two machines, and once more when everything is there, and says what that took.

    python benchmarks/dag_scale.py [--cases 2000] [--folder /tmp] [--profile FILE]

Exit code 1 where the plan takes 120 s or 2 GiB or more, or finding that nothing is to be done 60 s or more. The
machines are two environment.json of an H100; the files are made empty and marked as done by `snakemake --touch`.
A model has 200 cases; fewer are of one model with fewer variants.
With --profile, the plan's cProfile goes to that file.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from own_process import Took, run_command

from inferprof.files import write_json

REPOSITORY = Path(__file__).resolve().parents[1]
PLAN_SECONDS, NOOP_SECONDS, MEMORY_BYTES = 120.0, 60.0, 2 * 1024**3
MACHINES = ("h100-a", "h100-b")
VARIANTS, SHAPES = 5, 5
BACKENDS, PRECISIONS = ("ort_cuda", "tensorrt"), ("fp32", "fp16")
PER_VARIANT = len(MACHINES) * SHAPES * len(BACKENDS) * len(PRECISIONS)

H100: dict[str, Any] = {
    "gpus": [{"name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0", "memory_mib": 81559, "used": True}],
    "driver": {"version": "580.159.04"},
    "performance_counters": True,
    "packages": {"onnxruntime-gpu": "1.31.1", "torch": "2.11.0", "tensorrt": "10.13.3.9"},
    "tools": {
        "nsys": "2025.3.1",
        "ncu": "2025.3.1",
        "trtexec": {"value": None, "reason": "trtexec is not on PATH"},
    },
    "cpu": {"model": "Xeon", "threads": 16},
}
MODEL: dict[str, Any] = {
    "source": "python",
    "python": "module:build",
    "pretrained": False,
    "inputs": [{"name": "image", "dtype": "float32", "dims": ["b", 3, 32, 32]}],
}


def main() -> int:
    """Make the study, plan it, mark it done, plan it again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--profile", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        variants = min(VARIANTS, -(-args.cases // PER_VARIANT))
        models = -(-args.cases // (variants * PER_VARIANT))
        write_study(folder, models, variants)
        plan = snakemake(folder, "--dry-run", "--quiet", "rules", profile=args.profile)
        jobs = re.search(r"^total +(\d+)$", plan.output, re.MULTILINE)
        print(
            f"{models * variants * PER_VARIANT} cases, {jobs[1] if jobs else '?'} jobs: planned in {plan}", flush=True
        )
        mark_done(folder)
        noop = snakemake(folder, "--quiet", "rules")
        done = "Nothing to be done" in noop.output
        print(f"again, {'nothing to be done' if done else 'NOT a no-op'}: {noop}")
        if not (jobs and done):
            print(plan.output[-2000:], noop.output[-2000:], sep="\n")
    within = plan.seconds < PLAN_SECONDS and plan.peak < MEMORY_BYTES and noop.seconds < NOOP_SECONDS
    return int(not (jobs and done and within))


def write_study(folder: Path, models: int, variants: int) -> None:
    """Models, their config, and what the probes of two machines would have found."""
    (folder / "models").mkdir()
    (folder / "models" / "module.py").touch()
    names = [f"m{number}" for number in range(models)]
    for name in names:
        (folder / "models" / f"{name}.yaml").write_text(yaml.safe_dump(MODEL), encoding="utf-8")
    config = {
        "study": "scale",
        "machines": [{"label": label, "gres": "gpu:h100:1"} for label in MACHINES],
        "models": names,
        "precisions": list(PRECISIONS),
        "backends": list(BACKENDS),
        "variants": [{"name": "default"}, *({"name": f"v{number}"} for number in range(1, variants))],
        "shapes": [f"b{2**power}" for power in range(SHAPES)],
        "profilers": ["nsys", "kineto"],
        "baseline": "fp32/ort_cuda/default",
        **{"repeat": "all", "captures": "all"},  # the largest plan: no selection after the first round
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    for label in MACHINES:
        write_json(folder / "results" / label / "environment.json", {"machine": label, **H100})


def mark_done(folder: Path) -> None:
    """Make every output, and let Snakemake note that it is up to date."""
    names = (line.split("\t")[0] for line in snakemake(folder, "--summary").output.splitlines())
    for path in (folder / name for name in names if name.startswith("results/")):
        path.parent.mkdir(parents=True, exist_ok=True)
        is_folder = path.name in ("plots", "csv", "traces") or path.parent.name == "diagnosis"
        (path.mkdir if is_folder else path.touch)(exist_ok=True)
    print(f"marked as done in {snakemake(folder, '--touch', '--quiet', 'all')}", flush=True)


def snakemake(folder: Path, *arguments: str, profile: Path | None = None) -> Took:
    """Run Snakemake on the study to its end."""
    command: Sequence[str] = (
        *(sys.executable, *(("-m", "cProfile", "-o", str(profile)) if profile else ()), "-m", "snakemake"),
        *("--snakefile", str(REPOSITORY / "Snakefile"), "--directory", str(folder), "--cores", "1", *arguments),
        *("--workflow-profile", str(REPOSITORY / "profiles" / "default")),
    )
    return run_command(command, folder)


if __name__ == "__main__":
    sys.exit(main())
