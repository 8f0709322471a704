"""How fast it could be: floors, roofs, tiles, the waterfall of a case, and where throughput stops growing."""
