"""What other programs wrote, as rows of the tidy table, or as the values that these are made of."""
