"""What pairs of runs tell: speed-ups, success, tests that may be looked at any time, and how many tasks it takes."""
