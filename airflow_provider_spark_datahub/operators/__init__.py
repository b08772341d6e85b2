"""Operators: a task's context in, the lineage of its Spark job out."""
