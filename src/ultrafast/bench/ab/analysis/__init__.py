"""From pairs of runs to a recommendation: where the time went, what it cost, which arm to take and how sure that is."""
