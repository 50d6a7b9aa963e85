"""Totals of invoices."""
