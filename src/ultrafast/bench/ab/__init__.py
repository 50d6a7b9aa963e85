"""`ultrafast ab`: a user's own workflow in pairs under two configurations, and what the dearer one is worth."""
