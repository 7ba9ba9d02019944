"""The client of a session: connecting, remote calls, tensors and modules."""
