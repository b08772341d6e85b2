"""Operators: submit a Spark job with lineage, deliver pending lineage, and convert archives of events."""
