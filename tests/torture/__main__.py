"""`python -m tests.torture --backend postgres --seconds 600 --seed 7`: exit code 1 if anything was wrong."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.torture.run import SERVER_OF, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description="Torture a backend.")
    parser.add_argument("--backend", choices=["sqlite", *SERVER_OF], default="sqlite")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the journals")
    chosen = parser.parse_args()
    if chosen.keep is not None:
        chosen.keep.mkdir(parents=True)
    verdict = run(chosen.backend, chosen.seconds, chosen.seed, keep=chosen.keep)
    print(verdict)
    return 1 if verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
