"""Library files: their ELF headers, the manifest in them, and loading."""
