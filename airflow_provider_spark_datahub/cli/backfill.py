"""``spark-datahub backfill``: an archive of events through a Spark job, and what came of it to DataHub."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_provider_spark_datahub.backfill.plan import (
    CONVERTED_FILE,
    PLAN_FILE,
    SUMMARY,
    BackfillPlan,
    Cluster,
    PlanError,
    check_plan,
    folder_uri,
    spark_submit,
    write_package,
)
from airflow_provider_spark_datahub.cli.console import (
    EXIT_INCOMPLETE,
    EXIT_USAGE,
    fail,
    option_layers,
    read_settings,
    say,
)
from airflow_provider_spark_datahub.conversion import ProposalFormatError

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.backfill.delivery import PartState, ResultFolder
    from airflow_provider_spark_datahub.delivery import Sink

DEFAULT_RATE = 200.0
"""Proposals a second: what leaves a GMS of the usual size time for everybody else."""


_STANDARD_ERROR = 2  # the file descriptor

_Sources = Annotated[list[str], typer.Argument(help="Folders, files or globs of events, as the cluster knows them.")]
_Out = Annotated[str, typer.Option(help="Folder of this backfill: results, and where it goes on after a crash.")]
_OutConnection = Annotated[
    str | None, typer.Option(help="Connection of Airflow's by which this machine reaches an --out in an object store.")
]
_Since = Annotated[str | None, typer.Option(help="Only runs that ended at this time or later (ISO 8601).")]
_Until = Annotated[str | None, typer.Option(help="Only runs that ended before this time.")]
_Names = Annotated[list[str] | None, typer.Option(help="Only applications of this name; * for any text; repeatable.")]
_History = Annotated[bool, typer.Option(help="Every run, not only the last one of each job.")]
_Config = Annotated[Path | None, typer.Option(help="Options of the converter, as YAML or JSON.")]
_Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One option of the converter; repeatable.")
]
_Master = Annotated[str | None, typer.Option(help="Of Spark; default: what Spark's own configuration says.")]
_DeployMode = Annotated[str | None, typer.Option(help="client or cluster.")]
_Conf = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A property of Spark; repeatable.")]
_Binary = Annotated[str, typer.Option("--spark-submit", help="Which spark-submit.")]
_Parts = Annotated[int | None, typer.Option(help="How many files of proposals.", min=1)]
_Emit = Annotated[str | None, typer.Option(help="Deliver through this connection of Airflow's.")]
_Rate = Annotated[float, typer.Option(help="Proposals a second at most, over all threads; 0: no limit.", min=0)]
_Threads = Annotated[int, typer.Option(help="Parts that are delivered at the same time.", min=1)]
_Json = Annotated[bool, typer.Option("--json", help="Write the summary as JSON to standard output, for scripts.")]
_DryRun = Annotated[bool, typer.Option(help="Convert and count; write and deliver no proposals.")]


def backfill(
    sources: _Sources,
    out: _Out,
    out_connection: _OutConnection = None,
    since: _Since = None,
    until: _Until = None,
    application: _Names = None,
    run_history: _History = False,
    config: _Config = None,
    set_: _Set = None,
    master: _Master = None,
    deploy_mode: _DeployMode = None,
    conf: _Conf = None,
    binary: _Binary = "spark-submit",
    parts: _Parts = None,
    emit: _Emit = None,
    rate: _Rate = DEFAULT_RATE,
    threads: _Threads = 1,
    dry_run: _DryRun = False,
    as_json: _Json = False,
) -> None:
    """Convert an archive of events with Spark: of each aspect what a catalogue would have kept after a replay.

    Run it again with the same options after a crash: what is done is not done again.

    Exit status: 0; 1 where Spark failed or something could not be delivered; 2 for wrong options.
    """
    layers = option_layers(config, set_ or [])
    read_settings(layers)
    plan = BackfillPlan(
        sources=tuple(sources),
        out=folder_uri(out),
        options=tuple(layers),
        since=since,
        until=until,
        applications=tuple(application or ()),
        run_history=run_history,
        parts=parts,
        dry_run=dry_run,
    )
    folder = _folder_of(plan, out_connection)
    if not (folder / CONVERTED_FILE).exists():
        _submit(plan, Cluster(master, deploy_mode, _properties(conf or []), binary))
    summary = _summary(folder)
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    _say_summary(summary, folder)
    if emit and not dry_run:
        _deliver(folder, emit, rate, threads)


def _folder_of(plan: BackfillPlan, connection: str | None) -> ResultFolder:
    """The plan's folder, which is its own."""
    from airflow_provider_spark_datahub.hooks.storage import result_folder

    try:
        plan.selection()
        folder = result_folder(plan.out, connection)
        if (folder / PLAN_FILE).exists():
            check_plan(plan, (folder / PLAN_FILE).read_text())
    except PlanError as error:
        fail(str(error), EXIT_USAGE)
    return folder


def _properties(assignments: list[str]) -> dict[str, str]:
    properties = {}
    for assignment in assignments:
        key, found, value = assignment.partition("=")
        if not found:
            fail(f"--conf {assignment}: want KEY=VALUE", EXIT_USAGE)
        properties[key.strip()] = value.strip()
    return properties


def _submit(plan: BackfillPlan, cluster: Cluster) -> None:
    with tempfile.TemporaryDirectory(prefix="spark-datahub-") as folder:
        command = spark_submit(plan, cluster, write_package(Path(folder)))
        try:
            # Spark's own progress and log are the progress of this command, which is told on standard error.
            status = subprocess.run(command, stdout=_STANDARD_ERROR, check=False).returncode
        except OSError as error:
            fail(f"cannot run {cluster.binary}: {error.strerror or error}", EXIT_USAGE)
    if status:
        fail(f"{cluster.binary} ended with status {status}", EXIT_USAGE if status == EXIT_USAGE else EXIT_INCOMPLETE)


def _summary(folder: ResultFolder) -> dict[str, Any]:
    try:
        summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text())
    except OSError as error:
        fail(f"{folder} holds no summary, though Spark ended well: {error.strerror or error}", EXIT_INCOMPLETE)
    return summary


def _say_summary(summary: dict[str, Any], folder: ResultFolder) -> None:
    say(f"{summary['events']} events of {summary['runs']} runs: {summary['versions']} versions of aspects")
    for aspect, count in summary["proposals_by_aspect"].items():
        say(f"  {count:>9} {aspect}")
    say(f"{summary['proposals']} proposals in {folder}, {summary['quarantined']} lines or datasets came to nothing")
    for reason, count in summary["quarantined_by_reason"].items():
        say(f"  {count:>9} {reason}")


def _deliver(folder: ResultFolder, connection: str, rate: float, threads: int) -> None:
    from airflow_provider_spark_datahub.backfill.delivery import BackfillDelivery, Rate
    from airflow_provider_spark_datahub.backfill.plan import PartError
    from airflow_provider_spark_datahub.hooks.datahub import open_sink

    sink, problem = open_sink(connection)
    if sink is None:
        fail(str(problem), EXIT_USAGE)
    sink.close()

    def opened() -> Sink:
        from airflow_provider_spark_datahub.hooks.datahub import sink_of

        return sink_of(connection)

    delivery = BackfillDelivery(folder, opened, Rate(rate or None), threads=threads, tell=_tell)
    try:
        delivered = delivery.run()
    except (OSError, PlanError, PartError, ProposalFormatError) as error:
        fail(str(error), EXIT_INCOMPLETE)
    for one in delivered.problems:
        say(one)
    say(delivered.sentence)
    if delivered.complete < delivered.parts:
        fail("Run the same command again to deliver the rest.", EXIT_INCOMPLETE)


def _tell(part: str, state: PartState) -> None:
    say(f"{part}: {state.settled} proposals")
