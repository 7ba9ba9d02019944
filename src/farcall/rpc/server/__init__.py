"""The server of sessions: the supervisor, its workers, and what a session finds there."""
