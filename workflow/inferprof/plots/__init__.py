"""Plots of a model's measurements: one module per family, found by folder (see plugins.Plot)."""
