"""What runs where: nodes, layers and operators joined with the kernels that they launched, providers and formats."""
