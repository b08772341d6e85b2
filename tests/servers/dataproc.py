"""A stand-in for Dataproc's jobs and batches that speaks its gRPC, and runs a real Spark."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import grpc
import pytest

from tests.servers.managed_spark import Json, Run, Runs, State

_JOB = ("PENDING", "RUNNING", "CANCEL_PENDING", "DONE", "ERROR", "CANCELLED")
_BATCH = ("PENDING", "RUNNING", "CANCELLING", "SUCCEEDED", "FAILED", "CANCELLED")


class Dataproc:
    """The methods of its job controller, its batch controller and its operations."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self._v1: Any = import_module("google.cloud.dataproc_v1")
        self._operations: Any = import_module("google.longrunning.operations_pb2")

    def service(self, handler_call_details: Any) -> Any:
        """Return the method of this name, from bytes to bytes."""
        name = handler_call_details.method.rpartition("/")[2]
        if name.endswith("Operation"):
            parse = getattr(self._operations, f"{name}Request").FromString
        else:
            parse = getattr(self._v1, f"{name}Request").deserialize
        method = getattr(self, f"_{name}")
        return grpc.unary_unary_rpc_method_handler(method, parse, lambda answer: answer)

    def _SubmitJob(self, request: Any, context: Any) -> bytes:  # noqa: N802 (the protocol's names)
        job = self._v1.Job.to_dict(request.job, always_print_fields_with_no_presence=False)
        properties = job["pyspark_job"]["properties"]
        return self._job(self._start(request.job.reference.job_id, job, properties, context))

    def _GetJob(self, request: Any, context: Any) -> bytes:  # noqa: N802
        return self._job(self._run(request.job_id, context))

    def _CancelJob(self, request: Any, context: Any) -> bytes:  # noqa: N802
        self.runs.stop(self._run(request.job_id, context), signal.SIGKILL)
        return self._GetJob(request, context)

    def _job(self, run: Run) -> bytes:
        status = {"state": self._v1.JobStatus.State[_JOB[run.state]]}
        return bytes(
            self._v1.Job.serialize(
                {**run.request, "reference": {"job_id": run.id}, "status": status}
            )
        )

    def _CreateBatch(self, request: Any, context: Any) -> bytes:  # noqa: N802
        batch = self._v1.Batch.to_dict(request.batch, always_print_fields_with_no_presence=False)
        properties = batch["runtime_config"]["properties"]
        return self._operation(self._start(request.batch_id, batch, properties, context))

    def _operation(self, run: Run) -> bytes:
        operation = self._operations.Operation(
            name=f"operations/{run.id}", done=run.state >= State.SUCCEEDED
        )
        about = self._v1.BatchOperationMetadata(batch=f"batches/{run.id}")
        operation.metadata.Pack(self._v1.BatchOperationMetadata.pb(about))
        return bytes(operation.SerializeToString())

    def _GetBatch(self, request: Any, context: Any) -> bytes:  # noqa: N802
        run = self._run(request.name, context)
        state = self._v1.Batch.State[_BATCH[run.state]]
        return bytes(
            self._v1.Batch.serialize({**run.request, "name": request.name, "state": state})
        )

    def _GetOperation(self, request: Any, context: Any) -> bytes:  # noqa: N802
        return self._operation(self._run(request.name, context))

    def _CancelOperation(self, request: Any, context: Any) -> bytes:  # noqa: N802
        self.runs.stop(self._run(request.name, context))
        return b""

    def _run(self, name: str, context: Any) -> Run:
        run = self.runs.all.get(name.rpartition("/")[2])
        return run or context.abort(grpc.StatusCode.NOT_FOUND, f"Not found: {name}")

    def _start(
        self, run_id: str, request: Json, properties: Mapping[str, str], context: Any
    ) -> Run:
        if run_id in self.runs.all:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"Already exists: {run_id}")
        run = Run(run_id or f"run-{len(self.runs.all)}", request, _command(request, properties))
        self.runs.start(run)
        return run


def _command(request: Json, properties: Mapping[str, str]) -> list[str]:
    work = request["pyspark_job"] if "pyspark_job" in request else request["pyspark_batch"]
    options = [part for name, value in properties.items() for part in ("--conf", f"{name}={value}")]
    return ["spark-submit", *options, work["main_python_file_uri"], *work["args"]]


@contextmanager
def dataproc(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """While this lasts, Airflow's hooks reach jobs and batches that are these runs."""
    server = grpc.server(ThreadPoolExecutor(4), handlers=[Dataproc(runs)])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    hooks: Any = import_module("airflow.providers.google.cloud.hooks.dataproc")

    def client(kind: str, infix: str, transport: str, channel: Any) -> Any:
        module = f"google.cloud.dataproc_v1.services.{kind.lower()}_controller"
        connected = getattr(
            import_module(f"{module}.transports"), f"{kind}Controller{transport}Transport"
        )
        return getattr(import_module(module), f"{kind}Controller{infix}Client")(
            transport=connected(channel=channel)
        )

    for kind in ("Job", "Batch"):

        def of_hook(*_: object, kind: str = kind, **__: object) -> Any:
            return client(kind, "", "Grpc", grpc.insecure_channel(address))

        async def of_trigger(*_: object, kind: str = kind, **__: object) -> Any:
            return client(kind, "Async", "GrpcAsyncIO", grpc.aio.insecure_channel(address))

        monkeypatch.setattr(hooks.DataprocHook, f"get_{kind.lower()}_client", of_hook)
        monkeypatch.setattr(hooks.DataprocAsyncHook, f"get_{kind.lower()}_client", of_trigger)
    monkeypatch.setenv(
        "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", '{"conn_type": "google_cloud_platform"}'
    )
    server.start()
    try:
        yield
    finally:
        server.stop(0).wait()
