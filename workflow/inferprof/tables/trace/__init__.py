"""What a trace saw: the timeline that readers fill, and what an iteration did."""
