"""The parts of `grammars`: what is measured, and the libraries that are."""
