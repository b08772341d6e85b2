"""Spark's own event log: streaming queries as jobs, and what OpenLineage did not report."""
