"""Root cause of an incident, from its log."""
