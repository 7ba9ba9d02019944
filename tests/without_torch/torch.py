"""What a program finds as torch when it shall find none: see tests/programs.py."""

raise ImportError("hidden: this program needs no torch, and would take seconds to import it")
