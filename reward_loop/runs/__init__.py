"""Scored files: reading rollouts, writing outcomes, continuing an interrupted run, reports and comparisons."""
