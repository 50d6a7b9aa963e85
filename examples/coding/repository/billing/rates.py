"""Discounts by quantity."""


def discount_percent(quantity: int) -> int:
    """Percent off for this many pieces of one article; see the README."""
    if quantity > 50:
        return 12
    if quantity > 10:
        return 5
    return 0
