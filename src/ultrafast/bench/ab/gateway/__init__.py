"""A loopback server between a workflow and its endpoint: it sets the tier, records calls, and changes nothing else."""
