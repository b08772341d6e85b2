"""Runs folded from events, their lineage, and the jobs that are made of them."""
