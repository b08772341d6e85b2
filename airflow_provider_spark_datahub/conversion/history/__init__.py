"""What attempts leave for later questions: what changed since the last green run, and what a write
reached.
"""
