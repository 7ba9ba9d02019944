"""Tests of the kits in farcall.testing."""
