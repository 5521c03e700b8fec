"""Wrong values that can be written by hand into the tables of the SQLite family, whose columns accept any type.

A check in the layout refuses most of them. The others must stop no other group, and give a typed error at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["refused", "served", "aside", "told", "hidden"]
"""What happens then. "refused": a check refuses the value. "served": the messages of the group are delivered. "aside":
the group is parked, and an error names it. "told": the lease comes with an `EventDecodingError`. "hidden": the group is
in no line until a migration."""


@dataclass(frozen=True)
class Damage:
    """One statement about the group `bad`, whose messages are 1 and 3. `q_` means the prefix of the queue.

    Attributes:
        seen: whether `fairlane status` reports it.
    """

    statement: str
    outcome: Outcome
    seen: bool = False

    @property
    def name(self) -> str:
        return self.statement.removeprefix("update ").removesuffix(" where group_id = 'bad'")


def _of(table: str, column: str, outcome: Outcome, *values: str, seen: bool = False) -> list[Damage]:
    return [
        Damage(f"update q_{table} set {column} = {value} where group_id = 'bad'", outcome, seen) for value in values
    ]


NOT_UTF8 = "cast(x'22ff22' as text)"
HUGE = "9223372036854775807"

DAMAGES = [
    *_of("messages", "group_id", "refused", "null", "''", "x'62'"),
    *_of("messages", "group_id", "aside", NOT_UTF8, "'another'", seen=True),
    *_of("messages", "seq", "refused", "'x'", "x'62'", "1.5", "null", "seq - 100"),
    *_of("messages", "seq", "aside", "seq + 100", seen=True),
    *_of("messages", "event", "refused", "null", "x'31'"),
    *_of("messages", "event", "told", NOT_UTF8, "''", "'{'", "'1e999'"),
    *_of("messages", "priority", "refused", "null", "'x'", "5", "-1", "0.5"),
    *_of("messages", "published_at", "refused", "null", "'x'", "1.5"),
    *_of("messages", "published_at", "served", "0", "-1", HUGE, f"-{HUGE}"),
    *_of("messages", "dedup_id", "refused", "''", "x'62'"),
    *_of("messages", "dedup_id", "served", "null", "'d' || seq", "5 + seq", "cast(x'ff' as text) || seq"),
    *_of("groups", "group_id", "refused", "null", "x'62'"),
    *_of("groups", "group_id", "aside", NOT_UTF8, "'another'", seen=True),
    *_of("groups", "priority", "refused", "null", "'x'", "5", "-1", "0.5"),
    *_of("groups", "head_seq", "refused", "null", "'x'", "x'62'", "1.5"),
    *_of("groups", "head_seq", "aside", "99", "0", "-1", HUGE, f"-{HUGE}", seen=True),
    *_of("groups", "ready_at", "refused", "null", "'x'", "1.5", "9e999"),
    *_of("groups", "ready_at", "served", "0", "-1", f"-{HUGE} - 1"),
    *_of("groups", "ready_at", "hidden", HUGE, seen=True),
    *_of("groups", "token", "served", "''", "5", "x'ff'", NOT_UTF8),
    *_of("groups", "worker_id", "served", "''", "5", "x'ff'", NOT_UTF8),
    *_of("groups", "attempts", "refused", "null", "'x'", "-5", "1.5", HUGE, "9e999", "x'ff'"),
    *_of("groups", "attempts", "served", "1000"),
    Damage("delete from q_groups where group_id = 'bad'", "hidden", seen=True),
]


@dataclass(frozen=True)
class Setting:
    """One statement that damages a setting.

    Attributes:
        stops: what raises an error until a migration: "publish", "start" of a transport, or "nothing".
    """

    statement: str
    stops: Literal["publish", "start", "nothing"]


def _setting(name: str, stops: Literal["publish", "start", "nothing"], *values: str) -> list[Setting]:
    return [Setting(f"update q_settings set value = {value} where name = '{name}'", stops) for value in values]


SETTINGS = [
    *_setting("last_seq", "publish", "'x'", "x'31'", "1.5", "-1e999", HUGE),
    *_setting("revision", "start", "''", "'x'", "x'ff'", NOT_UTF8, "0"),
    *_setting("serves", "nothing", "'x'", "x'ff'", NOT_UTF8),
    *_setting("head_start", "nothing", "'x'", "x'ff'", NOT_UTF8),
    *(
        Setting(f"delete from q_settings where name = '{name}'", stops)  # type: ignore[arg-type]
        for name, stops in (("last_seq", "publish"), ("revision", "start"), ("head_start", "nothing"))
    ),
    Setting("delete from q_settings where name = 'serves'", "nothing"),
]
