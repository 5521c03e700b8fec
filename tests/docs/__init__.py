"""What the documents show is run: `test_pages` for the pages, the other modules for links, diagrams and the convention.

CONTRIBUTING.md ("Write documents") has the convention.
"""
