import unittest

from billing.invoice import Line, total


class InvoiceTest(unittest.TestCase):
    def test_a_few_pieces_cost_their_price(self) -> None:
        self.assertEqual(total([Line("bolt", 3, 250)]), 750)

    def test_ten_pieces_are_cheaper(self) -> None:
        self.assertEqual(total([Line("bolt", 10, 250)]), 2375)

    def test_fifty_pieces_are_cheaper_still(self) -> None:
        self.assertEqual(total([Line("bolt", 50, 250)]), 11000)

    def test_discounts_are_by_article(self) -> None:
        self.assertEqual(total([Line("bolt", 9, 100), Line("nut", 9, 100)]), 1800)


if __name__ == "__main__":
    unittest.main()
