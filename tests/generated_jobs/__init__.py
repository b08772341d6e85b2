"""Jobs whose lineage is known by construction: generated, run by a real Spark, judged, and shrunk."""
