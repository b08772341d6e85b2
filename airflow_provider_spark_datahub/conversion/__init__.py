"""From OpenLineage run events to DataHub proposals: pure functions, no I/O, no clock."""
