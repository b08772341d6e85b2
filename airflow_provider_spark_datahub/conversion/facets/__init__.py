"""Readers of OpenLineage's facets: properties, details of runs, and everything about datasets but
column lineage.
"""
