"""Readers and writers of IREE's signatures, of 2020 and of today."""
