"""Delivery of proposals: the outbox, the sinks and the time they have."""
