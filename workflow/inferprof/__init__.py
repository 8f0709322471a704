"""inferprof: from models to a measured and explained report on GPU inference performance.

The command line is `inferprof.cli`; docs/architecture.md says which module does what.
"""

import importlib.metadata

try:
    __version__ = importlib.metadata.version("inferprof")
except importlib.metadata.PackageNotFoundError:  # on PYTHONPATH alone, as the measuring core is run
    __version__ = "unknown"
