"""The oracle nobody here wrote: Pegasus' own validator, and the URN classes of DataHub's Java
client.
"""

from __future__ import annotations

import copy
import gzip
import json
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import datahub.metadata
import pytest

from airflow_provider_spark_datahub.conversion import Proposal, convert_events
from tests.conversion.builders import settings
from tests.conversion.test_corpus import CONFIGURATIONS
from tests.oracles.strict import violations
from tests.servers.process import files_of, java

DATA = Path(__file__).parents[1] / "data"
PROGRAM = Path(__file__).with_name("pegasus") / "Validate.java"
SCHEMAS = Path(datahub.metadata.__file__).with_name("schemas")
Json = dict[str, Any]

pytestmark = [pytest.mark.servers, pytest.mark.slow]


def problems(aspects: Sequence[Json], *, of_urns: bool) -> list[list[str]]:
    """Return what Pegasus has against each aspect, or what DataHub's classes have against the URNs
    in it.

    :param aspects: each with its ``aspectName``, ``entityUrn`` and ``value``.
    """
    jars = files_of("pegasus")
    # The translator of Avro schemas needs its own Pegasus, the URN classes the later one in
    # DataHub's client.
    first = jars / ("datahub-client-0.8.45.jar" if of_urns else "data-27.7.18.jar")
    command = [
        java(),
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{first}:{jars}/*",
    ]
    command += [str(PROGRAM), *([] if of_urns else [str(SCHEMAS)])]
    lines = "".join(json.dumps(aspect) + "\n" for aspect in aspects)
    run = subprocess.run(
        command, input=lines, capture_output=True, text=True, check=False, timeout=300
    )
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


@cache
def recorded() -> tuple[str, ...]:
    """Return every different aspect of every recorded job, in each configuration, as a line of
    JSON.
    """
    found: dict[str, None] = {}
    for file in sorted(DATA.glob("*/events/**/*.ndjson*")):
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        events = [json.loads(line) for line in content.splitlines() if line.strip()]
        for configuration in CONFIGURATIONS.values():
            chosen = settings(**configuration)
            for proposal in convert_events(events, chosen).proposals(chosen):
                if proposal.change_type == "UPSERT":
                    found[json.dumps(_line(proposal))] = None
    return tuple(found)


def _line(proposal: Proposal) -> Json:
    return {
        "aspectName": proposal.aspect_name,
        "entityUrn": proposal.entity_urn,
        "entityType": proposal.entity_type,
        "value": proposal.aspect,
    }


@pytest.mark.no_cover
@pytest.mark.parametrize("of_urns", [False, True], ids=["aspects", "URNs"])
def test_nothing_of_the_recorded_jobs_is_refused(of_urns: bool) -> None:
    aspects = [json.loads(line) for line in recorded()]
    found = problems(aspects, of_urns=of_urns)
    assert len(found) == len(aspects) > 1_000
    assert [
        (aspect["entityUrn"], wrong) for aspect, wrong in zip(aspects, found, strict=True) if wrong
    ] == []


def damaged(aspect: Json) -> Iterator[tuple[str, Json]]:
    """Yield copies of an aspect, each with one thing wrong, and what that is."""
    for path in _paths(aspect["value"]):
        for kind, value in (
            ("left out", None), ("null", None), ("text", "nonsense"), ("number", 7), ("truth value", True),
            ("list", []), ("object", {}), ("unknown key", {"nobodyKnows": 1}), ("no URN", "urn:li"),
        ):  # fmt: skip
            copied = copy.deepcopy(aspect)
            parent = copied["value"]
            for step in path[:-1]:
                parent = parent[step]
            if kind == "left out":
                del parent[path[-1]]
            elif kind == "unknown key" and isinstance(parent[path[-1]], dict):
                parent[path[-1]] |= value
            else:
                parent[path[-1]] = value
            if copied["value"] != aspect["value"]:
                yield f"{kind} for {_kind(aspect, path)}", copied


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:1])
        if isinstance(value, list)
        else ()
    )
    for step, child in children:
        yield from _paths(child, (*path, step))


def _kind(aspect: Json, path: tuple[Any, ...]) -> str:
    value = aspect["value"]
    for step in path:
        value = value[step]
    if isinstance(value, str) and value.startswith("urn:li:"):
        return "a URN"
    return {
        str: "a text",
        int: "a number",
        float: "a number",
        bool: "a truth value",
        list: "a list",
        dict: "an object",
    }.get(type(value), "null")


def test_it_agrees_with_our_oracle_about_damaged_aspects() -> None:
    # Except about URNs, which Pegasus takes for texts; GMS checks them by a validator of its own
    # (422).
    largest: dict[str, Json] = {}
    for line in recorded():
        aspect = json.loads(line)
        if len(line) < 4_000 and len(line) > len(json.dumps(largest.get(aspect["aspectName"], ""))):
            largest[aspect["aspectName"]] = aspect
    cases = [case for aspect in largest.values() for case in damaged(aspect)]
    found = problems([aspect for _, aspect in cases], of_urns=False)
    disagreements: dict[str, set[str]] = {"ours": set(), "Pegasus": set()}
    refused = 0
    for (kind, aspect), theirs in zip(cases, found, strict=True):
        proposal = {name: aspect[name] for name in ("entityType", "entityUrn", "aspectName")}
        ours = violations({**proposal, "changeType": "UPSERT", "aspect": {"json": aspect["value"]}})
        refused += bool(ours and theirs)
        if bool(ours) != bool(theirs):
            disagreements["ours" if ours else "Pegasus"].add(kind)
    assert disagreements == {"ours": {"text for a URN", "no URN for a URN"}, "Pegasus": set()}
    assert refused > 500
