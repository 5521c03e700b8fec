"""Tests that run what the documents show: `test_pages` runs the pages; other modules check links, diagrams and the
convention.

CONTRIBUTING.md ("Write documents") has the convention.
"""
