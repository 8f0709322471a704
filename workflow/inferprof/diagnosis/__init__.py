"""Why a case is as fast as it is: the checks, one module per level, and what runs them."""
