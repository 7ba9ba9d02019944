"""Calls by a Signature: binding and checking arguments, and restoring results."""
