"""Side-by-side measurements: farcall and its pinned rivals in one run. Start with ``make bench``."""
