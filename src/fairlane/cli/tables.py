"""Tables for people. Every cell is literal text and is never read as markup."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlane.cli.text import NONE, age, event_text, quoted_if_odd

if TYPE_CHECKING:
    from rich.progress import Progress

    from fairlane.model import GroupStatus, MessageStatus, QueueStatus

PIPED_WIDTH = 10_000
LONGEST_EVENT = 200
NARROWEST = 80
STATE_STYLES = {"ready": "green", "in_flight": "yellow", "parked": "blue", "paused": "magenta", "waiting": ""}


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints text unchanged: no markup, no emoji names, no highlighted numbers."""
    stream = sys.stderr if stderr else sys.stdout
    # A pipe has no width, and grep needs whole lines. In a narrow terminal long lines wrap, since a table that is
    # narrower than its columns would lose some of them.
    width = max(shutil.get_terminal_size().columns, NARROWEST) if stream.isatty() else PIPED_WIDTH
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False, soft_wrap=False)


def table(*columns: str, right: Sequence[str] = (), title: str | None = None, fold: Sequence[str] = ()) -> Table:
    """Return an empty table. Columns in `right` are aligned right; cells in `fold` may take several lines."""
    made = Table(
        box=SIMPLE_HEAD,
        title=Text(title) if title else None,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for column in columns:
        folded = column in fold
        made.add_column(
            Text(column),
            justify="right" if column in right else "left",
            no_wrap=not folded,
            overflow="fold" if folded else "ellipsis",
        )
    return made


def add_row(made: Table, *cells: object) -> None:
    """Add a row of literal cells."""
    made.add_row(*(cell if isinstance(cell, Text) else Text(_cell(cell)) for cell in cells))


def queue_table(row: QueueStatus, title: str | None = None) -> Table:
    """Return a table of the queue's figures, with the columns of the view `queue_status`."""
    numbers = ("groups", "ready", "in_flight", "parked", "paused", "messages", "oldest")
    made = table("queue", *numbers, right=numbers, title=title)
    counts = (row.groups, row.ready, row.in_flight, row.parked, row.paused, row.messages)
    add_row(made, f"{row.queue} (paused)" if row.is_paused else row.queue, *counts, age(row.oldest_seconds))
    return made


def group_table(rows: Sequence[GroupStatus], title: str | None = None) -> Table:
    """Return a table of groups in the order of the line, with the columns of the view `group_status`."""
    numbers = ("priority", "depth", "oldest", "attempts", "ready_in")
    made = table(
        *("group", "state", "priority", "depth", "oldest", "worker", "attempts", "ready_in"),
        right=numbers,
        title=title,
        fold=("group", "worker"),
    )
    for row in rows:
        add_row(
            made,
            quoted_if_odd(row.group_id),
            _state(row.state),
            row.priority,
            f"{row.depth}+" if row.depth_is_capped else row.depth,
            age(row.oldest_seconds),
            quoted_if_odd(row.worker_id) if row.worker_id is not None else NONE,
            row.attempts,
            age(row.ready_in_seconds) if row.ready_in_seconds else NONE,
        )
    return made


def message_table(rows: Sequence[MessageStatus], title: str | None = None) -> Table:
    """Return a table of a group's messages, head first, with the columns of the view `message_status`."""
    made = table(
        *("position", "seq", "state", "attempts", "age", "dedup_id", "event"),
        right=("position", "seq", "attempts", "age"),
        title=title,
    )
    longest = min(LONGEST_EVENT, max(20, shutil.get_terminal_size().columns)) if sys.stdout.isatty() else LONGEST_EVENT
    for row in rows:
        dedup_id = quoted_if_odd(row.dedup_id) if row.dedup_id is not None else NONE
        event = event_text(row.event, longest)
        add_row(made, row.position, row.seq, _state(row.state), row.attempts, age(row.age_seconds), dedup_id, event)
    return made


def _state(state: str) -> Text:
    return Text(state, style=STATE_STYLES.get(state, ""))


def _cell(value: object) -> str:
    if value is None:  # a figure that the backend does not report
        return NONE
    return f"{value:,}" if isinstance(value, int) else str(value)


def progress(on: Console | None = None, *, keep: bool = False) -> Progress:
    """Return a progress bar, by default on stderr. Without a terminal it prints nothing."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    chosen = on or console(stderr=True)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=chosen,
        disable=not chosen.is_terminal,
        transient=not keep,
    )
