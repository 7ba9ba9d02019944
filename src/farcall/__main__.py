"""``python -m farcall`` runs the command ``farcall``."""

from farcall.cli import main

if __name__ == "__main__":
    main()
