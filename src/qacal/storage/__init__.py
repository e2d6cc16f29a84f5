"""Fitted values to files and back."""
