"""Four programs that show what a tier's speed is worth; see README.md in this folder."""
