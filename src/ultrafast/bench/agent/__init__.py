"""An agent's task against the clock: steps with tools, and where the time of each goes."""
