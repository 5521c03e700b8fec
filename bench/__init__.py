"""Benchmarks: ratios against something real in the same run, never a timed test."""
