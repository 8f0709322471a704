#!/bin/sh
# Installs inferprof on a machine without network out of the parts that lie beside this file:
#   sh install.sh [FOLDER]                    (default ./inferprof; PYTHON=... names another interpreter)
# It checks every part, makes FOLDER with the project and its .venv, leaves the machine's torch as it is, and probes.
set -eu
for python in ${PYTHON:-python@PYTHON@ python3}; do
  found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || found=missing
  if [ "$found" = "@PYTHON@" ]; then
    exec "$python" - "$(dirname "$0")" "$@" <<'INSTALLER'
@INSTALLER@
INSTALLER
  fi
done
echo "install.sh: the wheels are for Python @PYTHON@, and $python is $found: PYTHON=/path/to/python@PYTHON@ sh install.sh, or pack for it: make offline PYTHON=..." >&2
exit 2
