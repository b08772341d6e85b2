"""Stand-ins for EMR, EMR Serverless, EMR on EKS and Glue: their protocols and states, the runs of a
real Spark.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import time
from typing import Any

from tests.servers.loopback import Answer, AnsweringServer, Request
from tests.servers.managed_spark import Json, Run, Runs, State
from tests.servers.s3 import S3

_STATES = {
    "emr": ("PENDING", "RUNNING", "CANCEL_PENDING", "COMPLETED", "FAILED", "CANCELLED"),
    "applications": ("SUBMITTED", "RUNNING", "CANCELLING", "SUCCESS", "FAILED", "CANCELLED"),
    "virtualclusters": (
        "SUBMITTED",
        "RUNNING",
        "CANCEL_PENDING",
        "COMPLETED",
        "FAILED",
        "CANCELLED",
    ),
    "glue": ("STARTING", "RUNNING", "STOPPING", "SUCCEEDED", "FAILED", "STOPPED"),
}


class UnknownError(LookupError):
    """A thing that the service does not have."""


class Aws(AnsweringServer):
    """One end point for the services.

    :ivar runs: all of them, by the ids that the services gave.
    :ivar jobs: those of Glue, by their names.
    :ivar application_state: of each application of EMR Serverless.
    """

    def __init__(self, runs: Runs, s3: S3) -> None:
        super().__init__()
        self.runs = runs
        self.jobs: dict[str, Json] = {}
        self.application_state = "STARTED"
        self._s3 = s3

    def connection(self) -> Json:
        """Return the Airflow connection to the services and to S3."""
        connection: Any = self._s3.connection()
        places = {
            "endpoint_url": self.url,
            "service_config": {"s3": {"endpoint_url": self._s3.url}},
        }
        return {**connection, "extra": {**connection["extra"], **places}}

    def answer(self, request: Request) -> Answer:
        """Answer a call of the JSON protocol, which names itself in a header, or of the REST
        protocol.
        """
        body = json.loads(request.body or b"{}")
        operation = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        try:
            if operation:
                answer = getattr(self, "_" + re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower())(
                    body
                )
            else:
                kind, owner, *more = request.path.partition("?")[0].strip("/").split("/")
                answer = self._rest(request.method, kind, owner, more, body)
        except UnknownError as error:
            return Answer(
                400, {"__type": str(error), "message": str(error)}, {"x-amzn-ErrorType": str(error)}
            )
        return Answer(200, answer)

    def _run(self, run_id: str, error: str) -> Run:
        if run_id not in self.runs.all:
            raise UnknownError(error)
        return self.runs.all[run_id]

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}{len(self.runs.all):013d}"

    # EMR Serverless (applications) and EMR on EKS (virtual clusters)

    def _rest(self, method: str, kind: str, owner: str, more: list[str], body: Json) -> Json:
        if more == ["start"]:
            self.application_state = "STARTED"
            return {}
        if not more:
            times = {"createdAt": time.time(), "updatedAt": time.time()}
            about = {
                "applicationId": owner,
                "arn": owner,
                "releaseLabel": "emr-7.9.0",
                "type": "SPARK",
                **times,
            }
            return {"application": {**about, "state": self.application_state}}
        if method == "POST":
            same = [
                run
                for run in self.runs.all.values()
                if run.request.get("clientToken") == body["clientToken"]
            ]
            run = same[0] if same else self._submitted(kind, body)
        else:
            run = self._run(more[1], "ResourceNotFoundException")
        if method == "DELETE":
            self.runs.stop(run)
        ids = {
            "id": run.id,
            "virtualClusterId": owner,
            "jobRunId": run.id,
            "applicationId": owner,
            "arn": run.id,
        }
        state = _name(run, kind)
        reason = {"failureReason": "USER_ERROR"} if run.state is State.FAILED else {}
        return {
            **ids,
            "jobRun": {**ids, "state": state, "stateDetails": f"the driver is {state}", **reason},
        }

    def _submitted(self, kind: str, body: Json) -> Run:
        driver = body["jobDriver"][
            "sparkSubmit" if kind == "applications" else "sparkSubmitJobDriver"
        ]
        command = ["spark-submit", *shlex.split(driver.get("sparkSubmitParameters", ""))]
        command += [driver["entryPoint"], *driver.get("entryPointArguments", ())]
        defaults: dict[str, str] = {}
        for one in body.get("configurationOverrides", {}).get("applicationConfiguration", ()):
            if one["classification"] == "spark-defaults":
                defaults.update(one["properties"])
        run = Run(self._new_id("00f"), body, command, defaults)
        self.runs.start(run)
        return run

    # EMR

    def _list_clusters(self, _: Json) -> Json:
        return {"Clusters": [{"Id": "j-1", "Name": "shop", "Status": {"State": "WAITING"}}]}

    def _describe_cluster(self, body: Json) -> Json:
        return {
            "Cluster": {"Id": body["ClusterId"], "Name": "shop", "Status": {"State": "WAITING"}}
        }

    def _add_job_flow_steps(self, body: Json) -> Json:
        first = len(self.runs.all)
        steps = [
            Run(f"s-{index:013d}", step, step["HadoopJarStep"]["Args"])
            for index, step in enumerate(body["Steps"], first)
        ]
        self.runs.start(*steps)
        return {"StepIds": [step.id for step in steps]}

    def _describe_step(self, body: Json) -> Json:
        run = self._run(body["StepId"], "InvalidRequestException")
        failure = (
            {"FailureDetails": {"Reason": "Unknown Error."}} if run.state is State.FAILED else {}
        )
        config = {
            "Jar": run.request["HadoopJarStep"]["Jar"],
            "Args": run.request["HadoopJarStep"]["Args"],
        }
        status = {"State": _name(run, "emr"), "StateChangeReason": {}, **failure}
        return {
            "Step": {"Id": run.id, "Name": run.request["Name"], "Config": config, "Status": status}
        }

    def _list_steps(self, body: Json) -> Json:
        return {
            "Steps": [self._describe_step({"StepId": step})["Step"] for step in body["StepIds"]]
        }

    def _cancel_steps(self, body: Json) -> Json:
        forced = body.get("StepCancellationOption") == "TERMINATE_PROCESS"
        for step in body["StepIds"]:
            run = self._run(step, "InvalidRequestException")
            self.runs.stop(run, signal.SIGKILL if forced else signal.SIGTERM)
        return {
            "CancelStepsInfoList": [
                {"StepId": step, "Status": "SUBMITTED"} for step in body["StepIds"]
            ]
        }

    # Glue

    def _get_job(self, body: Json) -> Json:
        if body["JobName"] not in self.jobs:
            raise UnknownError("EntityNotFoundException")
        return {"Job": self.jobs[body["JobName"]]}

    def _start_job_run(self, body: Json) -> Json:
        job = self._get_job(body)["Job"]
        arguments = {**job.get("DefaultArguments", {}), **body.get("Arguments", {})}
        defaults = {}
        if arguments.get("--enable-spark-ui") == "true":
            folder = arguments["--spark-event-logs-path"]
            defaults = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": folder}
        # The service cuts this one at blanks.
        properties = f"--conf {arguments['--conf']}".split() if arguments.get("--conf") else []
        command = [
            "spark-submit",
            *properties,
            job["Command"]["ScriptLocation"],
            "--JOB_NAME",
            body["JobName"],
        ]
        command += [
            part for name, value in arguments.items() if name != "--conf" for part in (name, value)
        ]
        run = Run(self._new_id("jr_"), body, command, defaults)
        self.runs.start(run)
        return {"JobRunId": run.id}

    def _get_job_run(self, body: Json) -> Json:
        run = self._run(body["RunId"], "EntityNotFoundException")
        about = {
            "Id": run.id,
            "JobName": run.request["JobName"],
            "Arguments": run.request.get("Arguments", {}),
        }
        return {"JobRun": {**about, "JobRunState": _name(run, "glue")}}

    def _get_job_runs(self, body: Json) -> Json:
        runs = [
            run for run in self.runs.all.values() if run.request.get("JobName") == body["JobName"]
        ]
        return {
            "JobRuns": [self._get_job_run({"RunId": run.id})["JobRun"] for run in reversed(runs)]
        }

    def _batch_stop_job_run(self, body: Json) -> Json:
        for run_id in body["JobRunIds"]:
            self.runs.stop(self._run(run_id, "EntityNotFoundException"), signal.SIGKILL)
        stopped = [{"JobName": body["JobName"], "JobRunId": run_id} for run_id in body["JobRunIds"]]
        return {"SuccessfulSubmissions": stopped, "Errors": []}


def _name(run: Run, service: str) -> str:
    return _STATES[service][run.state]
