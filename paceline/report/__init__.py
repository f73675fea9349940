"""Rows to what people read: tables on a terminal, CSV and JSON."""
