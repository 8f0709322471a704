"""A case under load: batches formed of single requests on real sessions, and measured from when each was due."""
