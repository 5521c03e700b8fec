"""The demo: a package manager's log, handled by several workers, one of which is killed; then the proof.

`rehearse` does it on any backend. It prints nothing: a `Watcher` sees what happens.
"""

from fairlane.demo.report import Casualty, Plan, Proof, Report, Watcher
from fairlane.demo.stage import rehearse

__all__ = ["Casualty", "Plan", "Proof", "Report", "Watcher", "rehearse"]
