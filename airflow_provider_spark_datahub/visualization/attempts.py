"""Sections of the page about attempts: what became of their lineage, what can be done, and lists of runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from html import escape

from airflow_provider_spark_datahub.visualization.names import format_time, harmless

_KNOWN_STATES = frozenset({"delivered", "quarantined", "pending", "unfinished", "complete", "none"})


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """Row of an attempt, or of a run with several of them.

    :param name: of the task and its attempt, or of the run.
    :param state: ``delivered``, ``pending``, ``quarantined``, ``unfinished`` or any other word.
    :param facts: counts and the connection, in a few words.
    :param notes: reasons and warnings, one sentence each.
    :param time: in milliseconds since 1970 UTC.
    :param link: a relative URL.
    :param raw: a relative URL of the proposals.
    """

    name: str
    state: str
    facts: str = ""
    notes: tuple[str, ...] = ()
    time: int | None = None
    link: str = ""
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """Button that sends a request.

    :param name: on the button.
    :param url: a relative URL, for a POST.
    :param doing: shown while the server works.
    """

    name: str
    url: str
    doing: str


def render_attempts(
    heading: str,
    rows: Sequence[AttemptRow],
    *,
    actions: Sequence[Action] = (),
    token: str = "",
    more: str = "",
    zone: tzinfo = UTC,
) -> str:
    """Return a section with a table of rows.

    :param token: sent with each action.
    :param more: a sentence below the table.
    :param zone: the time zone of all times.
    """
    parts = [
        f'<section class="panel" id="attempts"><div class="bar"><h2>{escape(heading)}</h2>',
        *_buttons(actions),
        f'<p id="outcome" role="status" data-token="{escape(token)}"></p></div>',
        *_table(rows, zone),
        f'<p class="hint">{escape(more)}</p>' if more else "",
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _buttons(actions: Iterable[Action]) -> Iterator[str]:
    for action in actions:
        target = f'data-action="{escape(action.url)}" data-doing="{escape(action.doing)}"'
        yield f'<button type="button" class="needs-script" {target}>{escape(action.name)}</button>'


def _table(rows: Sequence[AttemptRow], zone: tzinfo) -> Iterator[str]:
    if not rows:
        return
    yield '<div class="attempts"><table><thead><tr><th scope="col">what</th><th scope="col">lineage</th>'
    yield f'<th scope="col">when ({escape(str(zone))})</th></tr></thead><tbody>'
    for row in rows:
        name = f"<bdi>{escape(harmless(row.name))}</bdi>"
        shown = f'<a href="{escape(row.link)}">{name}</a>' if row.link else name
        known = row.state if row.state in _KNOWN_STATES else ""
        state = f'<span class="state {known}">{escape(harmless(row.state))}</span>'
        raw = f' <a class="how" href="{escape(row.raw)}">proposals</a>' if row.raw else ""
        facts = f" <bdi>{escape(harmless(row.facts))}</bdi>" if row.facts else ""
        notes = "".join(f'<bdi class="facts">{escape(harmless(note))}</bdi>' for note in row.notes)
        yield f'<tr><th scope="row">{shown}</th><td>{state}{facts}{raw}{notes}</td>'
        yield f"<td>{format_time(row.time, zone=zone)}</td></tr>"
    yield "</tbody></table></div>"
