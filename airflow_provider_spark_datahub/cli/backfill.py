"""``spark-datahub backfill``: conversion of an archive of events with Spark, and delivery of the
proposals.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_spark_datahub import hooks
from airflow_provider_spark_datahub.backfill import (
    CONVERTED_FILE,
    SUMMARY,
    BackfillDelivery,
    BackfillPlan,
    PlanError,
    Rate,
    ResultFolder,
    folder_uri,
    write_package,
)
from airflow_provider_spark_datahub.cli import console
from airflow_provider_spark_datahub.conversion import ProposalFormatError
from airflow_provider_spark_datahub.foundation.text import counted

_DEFAULT_RATE = 200.0
"""Proposals a second: leaves a GMS of the usual size time for other clients."""

_STANDARD_ERROR = 2  # the file descriptor


def backfill(
    sources: Annotated[
        list[str],
        typer.Argument(help="Folders, files or globs of events, as the cluster knows them."),
    ],
    out: Annotated[
        str, typer.Option(help="Folder of this backfill: its results and its progress.")
    ],
    out_connection: Annotated[
        str | None,
        typer.Option(
            help="Airflow connection through which this machine reaches an --out in an object store."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only runs that ended at this time or later: ISO 8601, or 7d for 7 days ago."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="Only runs that ended before this time: ISO 8601, or 12h for 12 hours ago."
        ),
    ] = None,
    application: Annotated[
        list[str] | None,
        typer.Option(
            help="Only applications of this name, in which * stands for any text; repeatable."
        ),
    ] = None,
    run_history: Annotated[
        bool, typer.Option(help="Keep every run, not only the last one of each job.")
    ] = False,
    config: console.ConfigOption = None,
    set_: console.SetOption = None,
    master: Annotated[
        str | None, typer.Option(help="Master of Spark; default: that of Spark's configuration.")
    ] = None,
    deploy_mode: Annotated[
        str | None, typer.Option(help="Deploy mode of Spark: client or cluster.")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="One property of Spark; repeatable."),
    ] = None,
    binary: Annotated[
        str, typer.Option("--spark-submit", help="The spark-submit to call.")
    ] = "spark-submit",
    parts: Annotated[int | None, typer.Option(help="Number of files of proposals.", min=1)] = None,
    emit: Annotated[
        str | None, typer.Option(help="Deliver through this Airflow connection.")
    ] = None,
    rate: Annotated[
        float,
        typer.Option(help="Proposals a second at most, over all threads; 0: no limit.", min=0),
    ] = _DEFAULT_RATE,
    threads: Annotated[
        int, typer.Option(help="Number of parts delivered at the same time.", min=1)
    ] = 1,
    dry_run: Annotated[
        bool, typer.Option(help="Convert and count; write and deliver no proposals.")
    ] = False,
    as_json: console.JsonOption = False,
) -> None:
    """Convert an archive of events with Spark, to the aspects that DataHub would have after a
    replay of all events.

    After a crash, run it again with the same options: it continues where it stopped.

    Exit status: 0; 1 if Spark failed or something could not be delivered; 2 for wrong options.
    """
    _, layers = console.read_settings(config, set_ or [])
    plan = BackfillPlan(
        sources=tuple(sources),
        out=folder_uri(out),
        options=tuple(layers),
        since=console.since_now(since),
        until=console.since_now(until),
        applications=tuple(application or ()),
        run_history=run_history,
        parts=parts,
        dry_run=dry_run,
    )
    try:
        with console.airflow_logs_to_stderr():
            folder = hooks.result_folder(plan.out, out_connection)
        plan = plan.resumed(folder, {"since": since, "until": until})
    except PlanError as error:
        console.fail(str(error))
    if not (folder / CONVERTED_FILE).exists():
        _submit(plan, binary, {"--master": master, "--deploy-mode": deploy_mode}, conf)
    _report(folder, as_json)
    if emit and not dry_run:
        _deliver(folder, emit, rate, threads)


def _submit(
    plan: BackfillPlan, binary: str, given: dict[str, str | None], conf: list[str] | None
) -> None:
    pairs = [(option, value) for option, value in given.items() if value]
    pairs += [("--conf", f"{key}={value}") for key, value in console.assigned("--conf", conf or [])]
    options = [text for pair in pairs for text in pair]
    with tempfile.TemporaryDirectory(prefix="spark-datahub-") as folder:
        command = plan.command(write_package(Path(folder)), binary, options)
        try:
            # Spark's progress and log are the progress of this command, which belongs to standard
            # error.
            status = subprocess.run(command, stdout=_STANDARD_ERROR, check=False).returncode
        except OSError as error:
            console.fail(f"cannot run {binary}: {error.strerror or error}")
    if status:
        exit_status = (
            console.EXIT_USAGE if status == console.EXIT_USAGE else console.EXIT_INCOMPLETE
        )
        console.fail(f"{binary} ended with status {status}", exit_status)


def _report(folder: ResultFolder, as_json: bool) -> None:
    try:
        summary = json.loads((folder / SUMMARY).read_text())
    except OSError as error:
        console.fail(
            f"{folder} has no summary although Spark succeeded: {error.strerror or error}",
            console.EXIT_INCOMPLETE,
        )
    if as_json:
        console.show_json(summary)
    events, runs = counted(summary["events"], "event"), counted(summary["runs"], "run")
    console.say(f"{events} of {runs}: {counted(summary['versions'], 'version')} of aspects")
    for aspect, count in summary["proposals_by_aspect"].items():
        console.say(f"  {count:>9} {aspect}")
    proposals = counted(summary["proposals"], "proposal")
    console.say(f"{proposals} in {folder}; quarantined lines or datasets: {summary['quarantined']}")
    for reason, count in summary["quarantined_by_reason"].items():
        console.say(f"  {count:>9} {reason}")


def _deliver(folder: ResultFolder, connection: str, rate: float, threads: int) -> None:
    with console.airflow_logs_to_stderr():
        sink, problem = hooks.open_sink(connection)
        if sink is None:
            console.fail(str(problem))
        delivery = BackfillDelivery(
            folder,
            lambda: hooks.sink_of(connection),
            Rate(rate),
            threads=threads,
            on_progress=lambda part, state: console.say(
                f"{part}: {counted(state.settled, 'proposal')}"
            ),
        )
        try:
            totals = delivery.run()
        except (OSError, PlanError, ProposalFormatError) as error:
            console.fail(str(error), console.EXIT_INCOMPLETE)
    for problem in totals.problems:
        console.say(problem)
    console.say(totals.sentence)
    if totals.complete < totals.parts:
        console.fail("Run the same command again to deliver the rest.", console.EXIT_INCOMPLETE)
