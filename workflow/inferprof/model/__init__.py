"""A model: its description, weights and inputs, its graph, and what that computes, costs and gives."""
