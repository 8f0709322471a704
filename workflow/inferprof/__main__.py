"""`python -m inferprof`: the command line where no script of it is installed."""

import sys

from inferprof.cli import main

sys.exit(main())
