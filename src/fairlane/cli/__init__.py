"""The command line. `main` is all that other modules need; everything else is imported when a command runs."""

from __future__ import annotations


def main() -> None:
    """Run the `fairlane` command and end the process with its exit code."""
    from fairlane.cli.runner import run

    raise SystemExit(run())
