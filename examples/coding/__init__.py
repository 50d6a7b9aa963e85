"""An agent of ten steps that mends a small repository."""
