"""Pairs of runs: which, in what order, of what, and the journal that outlives a kill."""
