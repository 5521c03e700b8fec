"""All commands of `fairlane`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from fairlane.cli import demo, leases, look, operate, publishing, queues, schema

app = typer.Typer(
    name="fairlane",
    help="Ordered, per-key queues in the database you already run.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("migrate", schema.migrate, "Create a queue's schema, or migrate it to a revision."),
    ("status", schema.status, "Show whether a queue's schema fits this client."),
    ("stats", look.stats, "Show the queue's figures."),
    ("groups", look.groups, "Show groups in the order of the line."),
    ("peek", look.peek, "Show the messages of a group."),
    ("publish", publishing.publish, "Publish an event, or a file of them."),
    ("claim", leases.claim, "Lease the next message and print the lease."),
    ("ack", leases.ack, "Delete a claimed message, which is finished."),
    ("nack", leases.nack, "Give a claimed message back."),
    ("extend", leases.extend, "Extend a lease."),
    ("release", operate.release, "End the lease of a worker that is gone."),
    ("pause", operate.pause, "Let workers pass a group or the queue over."),
    ("resume", operate.resume, "End the pause of a group or of the queue."),
    ("purge", operate.purge, "Delete the messages that wait in a group."),
    ("drop", queues.drop, "Remove a queue with all its messages."),
    ("backends", look.list_backends, "List the backends."),
    ("demo", demo.demo, "Run the demo, and prove its result."),
)
for _name, _function, _summary in _COMMANDS:
    app.command(_name, short_help=_summary)(_function)
app.add_typer(queues.app, name="queue", short_help="Show and change the settings of a queue.")


def _print_version(wanted: bool) -> None:
    if wanted:
        from fairlane import __version__

        typer.echo(f"fairlane {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Ordered, per-key queues in the database you already run.

    The database is named by --url or FAIRLANE_URL (or by STM_TRANSPORT_BACKEND and FAIRLANE_<BACKEND>_URL). Exit codes:
    0 done, 1 no (nothing to claim, not ready), 2 an error, which is one line on stderr; 130 Ctrl-C, 143 SIGTERM, 129
    the terminal was closed, 141 the reader of a pipe closed it.
    """
