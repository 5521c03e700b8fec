"""The command line. Other modules need only `main`. It imports the commands when it runs."""

from __future__ import annotations


def main() -> None:
    """Run the `fairlane` command and end the process with its exit code."""
    from fairlane.cli.runner import run

    raise SystemExit(run())
