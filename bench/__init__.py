"""Benchmarks: they compare with a real peer in the same run and show ratios. No benchmark is a test with a time
limit."""
