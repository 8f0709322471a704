# Two commands: `make report` runs the study, `make test` checks the code. Both set up .venv from the lock files.

PYTHON ?= python3
# The CUDA build of PyPI also runs on a CPU. For the smaller CPU build, give pip's options with it:
#   make report TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
TORCH ?= torch==2.13.0
# For what is prepared side by side: a measurement always has them all for itself.
CORES ?= all
NGC_TAG ?= 25.11-py3

# uv sets up in seconds what takes pip minutes; it does not read pip's configuration. `make UV=` does without it.
UV ?= $(shell uv --version >/dev/null 2>&1 && command -v uv)

VENV := .venv
PIP := $(if $(UV),VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip,$(VENV)/bin/pip)
# What pip warns of, it installs all the same.
QUIET := $(if $(UV),--quiet,-qq)
INSTALLED := $(VENV)/.installed
DEMO_FOLDER := dist/demo
DEMO := $(DEMO_FOLDER)/reports/baseline/REPORT.html
LOCKS := requirements/study.txt requirements/dev.txt
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: help demo install quick benchmarks report test test-gpu test-slurm test-image check lock image verify docs reference puzzles offline

# The study of config.yaml: results/REPORT.txt; first of all an answer about one model, format and shape.
report: $(INSTALLED)
	@inferprof unlock
	snakemake --cores $(CORES) first
	snakemake --cores $(CORES) results/REPORT.txt

# These targets. CORES=4, PYTHON=python3.12, TORCH="…" and NGC_TAG=… are variables of them.
help:
	@awk '!said && /^#/ {said = substr($$0, 3)} /^$$/ {said = ""} said && /^[a-z-]+:/ {sub(/:.*/, ""); printf "%-10s  %s\n", $$0, said}' \
	  $(firstword $(MAKEFILE_LIST))

# What a report looks like: that of the study baseline on an H200, made here of its bundle in half a minute.
demo: $(DEMO)
	@python -c 'import sys, webbrowser; sys.exit(not (sys.stdout.isatty() and webbrowser.open(sys.argv[1])))' file://$(CURDIR)/$< || true
	@echo "The report is $(CURDIR)/$<"

$(DEMO): studies/reference/h200/baseline.zip | $(INSTALLED)
	rm -rf $(DEMO_FOLDER)
	inferprof unbundle $< --out $(DEMO_FOLDER) --report

# What is known of a graph within a minute: make quick MODEL=path/to/model.onnx [SHAPE=b8_s128]
quick: $(INSTALLED)
	@inferprof quick "$(MODEL)" $(if $(SHAPE),--shape $(SHAPE))

# .venv alone, where something else runs the study.
install: $(INSTALLED)

# Every check of the code. A part that fails hides no other; tests that judge times have the cores for themselves.
# Compiled modules are kept: tests start some thousand processes of Python. Studies wait more than they compute, so
# there are more of them than cores.
test: check
	@failed=0; unset PYTHONDONTWRITEBYTECODE; set -x; \
	pytest -q -n auto --dist worksteal tests/unit || failed=1; \
	pytest -q -n $$(($$(nproc) + 1)) --dist loadfile --no-loadscope-reorder -m "not timed" tests/workflow || failed=1; \
	pytest -q -m timed tests/workflow || failed=1; \
	exit $$failed

# The checks that run nothing: format, lint, types, imports.
check: $(INSTALLED)
	ruff format --check .
	ruff check .
	snakefmt --check Snakefile workflow/rules
	mypy
	lint-imports
	snakemake --lint

# What works on this machine, row by row, in under 10 minutes, and a bundle to send back (docs/new-gpu.md).
verify: $(INSTALLED)
	inferprof verify

# What no machine without a GPU can prove of the code.
test-gpu: $(INSTALLED)
	pytest -q tests/gpu

# On a Debian host, as root: a study over a Slurm cluster of two nodes on this host. About 10 minutes.
test-slurm: $(INSTALLED)
	@[ "$$(id -u)" = 0 ] || { echo "make test-slurm installs Debian's slurm-wlm and munge and starts slurmd: run it as root" >&2; exit 2; }
	{ command -v slurmctld && command -v slurmd && command -v munged; } >/dev/null || { apt-get update -q && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -q --yes --no-install-recommends slurm-wlm munge; }
	$(PIP) install $(QUIET) --no-deps -r requirements/slurm.txt
	pytest -q tests/slurm

# On a Debian host, as root: the image on a stand-in for NVIDIA's, and the study in it. 10 to 40 minutes, 12 to 20 GB of disk.
#   make test-image STAND_IN_PYTHON=/path/to/bin/python3.12      with NVIDIA's version, copied; else Debian's 3.11
STAND_IN_PYTHON ?= python3.12
IMAGE_TOOLS = buildah podman runc catatonit debootstrap
test-image: $(INSTALLED)
	@[ "$$(id -u)" = 0 ] || { echo "make test-image installs Debian's $(IMAGE_TOOLS) and makes a root of its own: run it as root" >&2; exit 2; }
	(for tool in $(IMAGE_TOOLS); do command -v $$tool >/dev/null || exit 1; done) || { apt-get update -q && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -q --yes --no-install-recommends $(IMAGE_TOOLS); }
	TORCH='$(TORCH)' STAND_IN_PYTHON='$(STAND_IN_PYTHON)' pytest -q tests/image

$(INSTALLED): $(LOCKS) pyproject.toml
	@command -v git >/dev/null || { echo "git is missing: apt install git" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "$(PYTHON) is missing or older than 3.11: apt install python3 python3-venv, or make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "Python's venv package is missing: apt install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install $(QUIET) $(TORCH)
	$(PIP) install $(QUIET) --no-deps $(addprefix -r ,$(LOCKS))
	$(PIP) install $(QUIET) --no-deps --no-build-isolation --editable .
	@touch $@

# Resolves requirements/*.in anew (needs uv). Universal: one lock for Python 3.11 to 3.13.
LOCK = uv pip compile --universal --python-version 3.11 --override overrides.in --no-header --annotation-style line
lock:
	cd requirements && $(LOCK) study.in -o study.txt && $(LOCK) dev.in -o dev.txt && $(LOCK) slurm.in -o slurm.txt && $(LOCK) puzzles.in -o puzzles.txt

# How fast the program itself is, beside what docs/performance.md has. About 10 minutes.
benchmarks: $(INSTALLED)
	python benchmarks/table.py

# The tables of docs/ that say what the code has: checks, options, verbs, keys, columns.
docs: $(INSTALLED)
	python -m docs.generate

# docs/reference-*.md out of the measured files in studies/reference/, on any machine.
#   make reference BUNDLE=verify.bundle.zip        keeps what `make verify` made on another box, and writes its page
reference: $(INSTALLED)
	python studies/reference/document.py $(BUNDLE)

# studies/puzzles/*/SOLUTION.md out of the bundle beside each, on any machine.
puzzles: $(INSTALLED)
	python studies/puzzles/document.py

# For a machine without network: project, wheels and installer as parts in dist/offline/ (docs/offline.md).
#   make offline PYTHON=3.12 PART=60M        beside the torch that is there; TORCH="torch==2.13.0" packs it too
#   make offline ARCH="x86_64 aarch64"       install.sh chooses by the machine
PART ?= 60M
ARCH ?= x86_64
offline:
	@python3 offline/pack.py $(LOCKS) --python $(if $(filter 3.%,$(PYTHON)),$(PYTHON),3.12) --part $(PART) --arch $(ARCH) \
	  $(if $(GLIBC),--glibc $(GLIBC)) --torch '$(if $(filter file,$(origin TORCH)),there,$(TORCH))'

# The container image (docs/container.md). ENGINE=podman builds without a daemon.
#   make image BASE=nvcr.io/nvidia/pytorch@sha256:...      a base by its digest, in place of NGC_TAG
ENGINE ?= docker
image:
	$(ENGINE) build $(if $(BASE),--build-arg BASE=$(BASE),--build-arg NGC_TAG=$(NGC_TAG)) --build-arg REVISION=$$(git describe --always --abbrev=40 --exclude='*') \
	  --build-arg VERSION=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml) -t inferprof:latest .
