"""Backfill of an archive with Spark: the plan and its submission, the Spark job, and the delivery of its results."""
