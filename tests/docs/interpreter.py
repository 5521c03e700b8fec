"""Runs the Python blocks of a page that share a namespace. `running.Interpreter` starts it in a separate process.

A request is a line of JSON on the standard input: the code, the page it is from, the line it begins at, the file for
what it prints. The answer is a line on the standard output: whether the code ran to its end.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import types


def main() -> None:
    requests = os.fdopen(os.dup(0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    program = types.ModuleType("__main__")  # dataclasses and similar libraries look for the names of a class there
    sys.modules["__main__"] = program
    sys.path[0] = ""
    for line in requests:
        request = json.loads(line)
        printed = os.open(request["output"], os.O_WRONLY | os.O_CREAT)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        done = perform(request, program)
        sys.stdout.flush()
        sys.stderr.flush()
        os.close(printed)
        answers.write(json.dumps(done) + "\n")
        answers.flush()


def perform(request: dict[str, str], program: types.ModuleType) -> bool:
    try:
        # as many empty lines before it as there are lines in the page, so that a traceback names the page's lines
        code = compile("\n" * (int(request["line"]) - 1) + request["code"], request["page"], "exec")
        exec(code, program.__dict__)
    except SystemExit as leaving:
        return not leaving.code
    except BaseException:
        traceback.print_exc()
        return False
    return True


if __name__ == "__main__":
    main()
