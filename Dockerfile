# NVIDIA's PyTorch image (CUDA, torch, TensorRT, Nsight Systems, Nsight Compute) with the study's Python packages.
# docs/container.md: how to build and run it. docs/versions.md: what each tag holds.
ARG NGC_TAG=25.11-py3
# Another base, such as one by its digest: --build-arg BASE=nvcr.io/nvidia/pytorch@sha256:...
ARG BASE=nvcr.io/nvidia/pytorch:${NGC_TAG}
FROM ${BASE}

WORKDIR /inferprof
# The image's Python is the system's own; there is no other to protect.
ENV PIP_BREAK_SYSTEM_PACKAGES=1

# Layers by how often they change: packages with the lock, the project with each commit, labels last.
# What the image holds or constrains wins over our lock. `onnxruntime` and `onnxruntime-gpu` are one module, so the
# first goes. Conflicts that `pip check` finds are printed, not fatal: the image may bring some of its own.
COPY requirements/study.in requirements/study.txt requirements/
COPY docker/image_requirements.py docker/bill.py docker/
RUN python3 docker/image_requirements.py requirements/study.txt --needs requirements/study.in > /tmp/install.txt \
    && pip uninstall --yes onnxruntime \
    && pip install --no-cache-dir --no-deps -r /tmp/install.txt \
    && { pip check || true; } \
    && rm /tmp/install.txt

COPY models models
COPY profiles profiles
COPY studies studies
COPY Snakefile config.yaml pyproject.toml README.md LICENSE ./
COPY workflow workflow
# The constraint file is lifted for the setuptools that builds our package in an environment apart.
# The dry run proves that the study starts. Any user may then write to the two folders.
RUN env -u PIP_CONSTRAINT pip install --no-cache-dir --no-deps . \
    && snakemake --cores 1 --dry-run results/REPORT.txt \
    && mkdir /usr/share/inferprof \
    && python3 docker/bill.py > /usr/share/inferprof/bill.json \
    && rm -rf .snakemake build workflow/*.egg-info ~/.cache \
    && mkdir --mode=1777 /cache \
    && chmod 1777 /inferprof

# HOME, USER: caches go to /cache, and a user id without an entry in /etc/passwd has a home and a name all the same.
# PYTHONPATH: of a checkout mounted over /inferprof its own package runs, not the one that the image was built with.
# safe.directory: root may read the git revision of a checkout that belongs to another user.
ENV HOME=/cache XDG_CACHE_HOME=/cache USER=inferprof \
    PYTHONPATH=/inferprof/workflow${PYTHONPATH:+:${PYTHONPATH}} \
    GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=/inferprof
CMD ["snakemake", "--cores", "1", "results/REPORT.txt"]

# What `make image` built it from. Records of the image's own copy name the revision too.
ARG VERSION=unknown
ARG REVISION=unknown
ARG BASE
RUN echo "${REVISION}" > .git_archival.txt
LABEL org.opencontainers.image.title="inferprof" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
