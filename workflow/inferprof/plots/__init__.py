"""The plots: one module per family, each a function from a frame to a Figure."""
