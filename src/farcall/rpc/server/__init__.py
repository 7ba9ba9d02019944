"""The server of sessions: the supervisor, its workers, and the functions that a session can call."""
