"""The parts of the URNs that a picture shows."""

from __future__ import annotations

import re

_DATASET = re.compile(r"urn:li:dataset:\(urn:li:dataPlatform:([^,]+),(.*),([^,]+)\)", re.DOTALL)
_FIELD = re.compile(r"urn:li:schemaField:\((urn:li:dataset:\(.*\)),(.*)\)", re.DOTALL)
_FLOW = re.compile(r"urn:li:dataFlow:\(([^,]+),(.*),([^,]+)\)", re.DOTALL)
_JOB = re.compile(r"urn:li:dataJob:\((urn:li:dataFlow:\(.*\)),([^,]*)\)", re.DOTALL)
_TYPE_OF_PATH = re.compile(r"\[(?:version|type|key)=[^\]]*\]\.?")
_ENCODED = re.compile(r"%(25|28|29|2C)", re.IGNORECASE)


def decoded(part: str) -> str:
    """A part of a URN without the %-encoding that acryl-datahub gives its reserved ``%``, ``,``, ``(`` and ``)``."""
    return _ENCODED.sub(lambda match: chr(int(match[1], 16)), part)


def dataset_parts(urn: str) -> tuple[str, str, str] | None:
    """Platform, name and environment of a dataset's URN."""
    match = _DATASET.fullmatch(urn)
    return (decoded(match[1]), decoded(match[2]), match[3]) if match else None


def field_parts(urn: str) -> tuple[str, str] | None:
    """The dataset's URN and the field path of a schemaField's URN."""
    match = _FIELD.fullmatch(urn)
    return (match[1], decoded(match[2])) if match else None


def plain_path(path: str) -> str:
    """A field path without the types that version 2 of DataHub's field paths holds in brackets."""
    return _TYPE_OF_PATH.sub("", path).removesuffix(".") or path


def flow_parts(urn: str) -> tuple[str, str] | None:
    """Orchestrator and flow id of a DataFlow's URN."""
    match = _FLOW.fullmatch(urn)
    return (decoded(match[1]), decoded(match[2])) if match else None


def job_parts(urn: str) -> tuple[str, str] | None:
    """The DataFlow's URN and the job id of a DataJob's URN."""
    match = _JOB.fullmatch(urn)
    return (match[1], decoded(match[2])) if match else None


def orchestrator_of(urn: str) -> str | None:
    """The orchestrator of a DataFlow or DataJob."""
    job = job_parts(urn)
    flow = flow_parts(job[0] if job else urn)
    return flow[0] if flow else None


def last_part(urn: str) -> str:
    """What remains of any URN without ``urn:li:<entity type>:``."""
    return decoded(urn.split(":", 3)[-1])
