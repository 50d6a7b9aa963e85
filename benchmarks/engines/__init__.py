"""One file an engine: how to make it do a `task.Task`. `serve` runs one of them in a process of its own."""
