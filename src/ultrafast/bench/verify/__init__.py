"""Is one way of asking the same model as another: a ladder of tests, each with a margin and an error rate."""
