"""Limits that all processes of a job keep together."""
