"""Tests of Fairlane. `tests.servers` needs nothing but the standard library."""
