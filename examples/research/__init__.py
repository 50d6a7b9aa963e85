"""A note for traders, from filings and quotes of the same morning."""
