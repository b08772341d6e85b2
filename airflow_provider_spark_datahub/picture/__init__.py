"""Shows what proposals say, for the eyes of a person."""
