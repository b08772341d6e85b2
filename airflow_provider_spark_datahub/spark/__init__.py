"""Archives of events of any size, converted by a Spark job with the very functions that convert one task's events."""
