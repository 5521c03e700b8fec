"""The demo: several workers handle a package manager's log, one worker is killed, and the result is proved.

`run_demo` runs it on any backend. It prints nothing; a `Watcher` is told what happens.
"""

from fairlane.demo.report import Casualty, Plan, Proof, Report, Watcher
from fairlane.demo.stage import run_demo

__all__ = ["Casualty", "Plan", "Proof", "Report", "Watcher", "run_demo"]
