"""One clock for every runtime: loops, boundaries, stages, telemetry, and what a run checks of itself."""
