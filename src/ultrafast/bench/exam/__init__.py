"""A question set answered end to end against the clock."""
