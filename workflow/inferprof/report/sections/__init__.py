"""One module per part of the report. Each turns the evidence into sections; none of them reads a file."""
