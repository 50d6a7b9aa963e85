"""What a model may think before it must speak."""
