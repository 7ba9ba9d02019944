"""The formats in which IREE writes signatures, of 2020 and of today."""
