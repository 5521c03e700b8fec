"""Tests of Fairlane. `tests.servers` needs only the standard library."""
