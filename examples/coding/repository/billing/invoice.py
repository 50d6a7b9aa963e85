"""Lines of an invoice and their total, in cents."""

from dataclasses import dataclass

from billing.rates import discount_percent


@dataclass
class Line:
    article: str
    quantity: int
    price: int  # of one piece, in cents

    @property
    def amount(self) -> int:
        """After the discount, rounded to the cent."""
        full = self.quantity * self.price
        return full - round(full * discount_percent(self.quantity) / 100)


def total(lines: list[Line]) -> int:
    """What is to be paid."""
    return sum(line.amount for line in lines)
