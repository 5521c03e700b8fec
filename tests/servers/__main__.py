"""Install, start and stop the servers of the tests.

    python -m tests.servers run [--only NAMES] -- COMMAND …   start servers, run COMMAND, stop them
    python -m tests.servers install [--only NAMES]            fetch what is missing, start nothing
    python -m tests.servers list                              what is there, and from where

COMMAND finds the URLs in FAIRLANE_TEST_<BACKEND>_URL. If such a variable is set already, that server is used as it is:
nothing is installed, started or stopped for it.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.servers import DEFAULT, OPTIONAL, SERVERS, TOOLS, ServerError, find_tool
from tests.servers.install import say
from tests.servers.runner import install, run


def main(argv: list[str] | None = None) -> int:
    arguments = parse(sys.argv[1:] if argv is None else argv)
    try:
        if arguments.action == "list":
            return show()
        names = chosen(arguments.only)
        if arguments.action == "install":
            install(names, tools=TOOLS)
            return 0
        return run(names, arguments.command)
    except ServerError as error:
        print(f"servers: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__.partition("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    only = argparse.ArgumentParser(add_help=False)
    usual = f"{','.join(DEFAULT)}, and {','.join(OPTIONAL)} where it can run"
    only.add_argument("--only", metavar="NAMES", help=f"of {', '.join(SERVERS)} (default: {usual})")
    running = actions.add_parser("run", parents=[only], help="run a command beside the servers")
    running.add_argument("command", nargs="+", metavar="COMMAND")
    actions.add_parser("install", parents=[only], help="fetch what is missing")
    actions.add_parser("list", help="what is there")
    return parser.parse_args(argv)


def chosen(only: str | None) -> list[str]:
    if only is None:
        return [*DEFAULT, *filter(_is_possible, OPTIONAL)]
    names = [name for name in only.split(",") if name]
    if unknown := [name for name in names if name not in SERVERS]:
        raise ServerError(f"unknown: {', '.join(unknown)}; there are {', '.join(SERVERS)}")
    return names


def _is_possible(name: str) -> bool:
    """Return whether the machine can run an optional server; if not, print the reason."""
    if os.environ.get(SERVERS[name].variable):
        return True
    try:
        SERVERS[name].install()
    except ServerError as error:
        say(f"{error}; without {name} the tests that need it are skipped")
        return False
    return True


def show() -> int:
    found = {name: server.find() for name, server in SERVERS.items()} | {name: find_tool(name) for name in TOOLS}
    for name, program in found.items():
        print(f"{name:<16}{program.path if program else '-'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
