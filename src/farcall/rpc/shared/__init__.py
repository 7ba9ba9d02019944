"""What both sides of a session use."""
