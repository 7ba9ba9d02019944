"""Replaces torch in programs that must run without it: see tests/programs.py."""

raise ImportError("hidden: this program needs no torch, and would take seconds to import it")
