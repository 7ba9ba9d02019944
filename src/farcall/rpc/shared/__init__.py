"""Code that both client and server use."""
