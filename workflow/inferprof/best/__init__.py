"""From advice to proof: what is measured next, what replaces the incumbent, and how often that is wrong."""
