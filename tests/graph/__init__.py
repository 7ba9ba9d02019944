"""Tests of models in, partitions out."""
