"""Calls by a Signature: arguments bound and checked, results restored."""
