"""The client of a session: connecting, calls, tensors and modules of the other side."""
