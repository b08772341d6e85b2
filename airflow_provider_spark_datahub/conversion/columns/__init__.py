"""Column lineage: read from facets or from SQL statements, and written as ``fineGrainedLineages``."""
