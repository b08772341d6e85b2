"""Flow and job of an event (conversion rules, sections 1 and 2), and URNs against acryl-datahub's
classes.
"""

from __future__ import annotations

import urllib.parse
from typing import Any

import pytest
from datahub.emitter.mcp_builder import DatahubKey
from datahub.metadata.urns import (
    CorpUserUrn,
    DataPlatformUrn,
    DataProcessInstanceUrn,
    TagUrn,
)
from datahub.utilities.urn_encoder import UrnEncoder
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from airflow_provider_spark_datahub.conversion import EventError, urns
from airflow_provider_spark_datahub.conversion.urns import FlowIdentity, job_id_and_name
from tests.cases import cases
from tests.conversion.builders import parsed, settings
from tests.oracles.strict import dropping_violations

# -- Flow and job of an event


OPENLINEAGE = "https://github.com/OpenLineage/OpenLineage/"


@cases("urns")
def test_the_orchestrator_is_found(
    producer: str, engine: str | None, option: str | None, expected: str
) -> None:
    event = parsed(producer=producer, run_facets={"processing_engine": {"name": engine}})
    assert FlowIdentity.of(event, settings(orchestrator=option), "").orchestrator == expected


@cases("urns")
def test_an_unknown_orchestrator_is_an_error(producer: str) -> None:
    with pytest.raises(EventError) as raised:
        FlowIdentity.of(parsed(producer=producer), settings(), "")
    assert repr(producer) in str(raised.value)


@cases("urns")
def test_the_application_name_is_found(facets: Any, expected: list[str]) -> None:
    assert list(parsed(run_facets=facets).names.application) == expected


@cases("urns")
def test_the_flow_has_orchestrator_id_and_cluster(
    job: str, namespace: str, app_name: str, options: Any, urn: str
) -> None:
    assert (
        FlowIdentity.of(parsed(job=job, namespace=namespace), settings(**options), app_name).urn
        == urn
    )


def test_a_job_name_that_starts_with_a_dot_names_no_flow() -> None:
    with pytest.raises(EventError, match=r"'\.x' starts with a dot"):
        FlowIdentity.of(parsed(job=".x"), settings(), "")
    assert FlowIdentity.of(parsed(job=".x"), settings(), "app").flow_id == "app"


@cases("urns")
def test_the_job_of_a_single_event_has_its_name(job: str, name: str) -> None:
    assert job_id_and_name(parsed(job=job), settings()) == (job, name)


MERGE = "app.execute_merge_into_command_edge"


@cases("urns")
def test_a_merge_is_named_after_its_target(sql: str, outputs: Any, table: str) -> None:
    event = parsed(job=MERGE, job_facets={"sql": {"query": sql}}, outputs=outputs)
    named = f"{MERGE}.{table.replace('.', '_').lower()}" if table else MERGE
    assert job_id_and_name(event, settings(enhanced_merge_into_extraction=True))[0] == named
    assert job_id_and_name(event, settings())[0] == MERGE


def test_only_merges_are_named_after_their_table() -> None:
    event = parsed(job="app.insert", job_facets={"sql": {"query": "MERGE INTO t"}})
    assert job_id_and_name(event, settings(enhanced_merge_into_extraction=True)) == (
        "app.insert",
        "insert",
    )


# -- URNs, against acryl-datahub's URN classes


# A text that starts like a URN is taken for one; all else may stand in a part of a URN.
# Short ones: four of them fit into a URN, in whatever way they are encoded.
characters = st.characters(exclude_categories=["Cs"]) | st.sampled_from(",()%␟/. ")
names = st.text(characters, min_size=1, max_size=7).filter(
    lambda text: not text.startswith("urn:li:")
)
words = st.text("abz-_09", min_size=1, max_size=20)


@given(names)
def test_reserved_characters_are_encoded(text: str) -> None:
    assert urns.encode(text) == UrnEncoder.encode_string(text)


@given(names)
def test_urns_of_one_part_equal_acryl_datahubs(name: str) -> None:
    assert urns.platform_urn(name) == DataPlatformUrn(name).urn()
    assert urns.dpi_urn(name) == DataProcessInstanceUrn(name).urn()
    assert urns.tag_urn(name) == TagUrn(name).urn()
    assert urns.owner_urn(name) == CorpUserUrn(name).urn()


@pytest.mark.parametrize("owner", ["urn:li:corpuser:jane", "urn:li:corpGroup:data,team"])
def test_an_owner_may_be_a_urn(owner: str) -> None:
    assert urns.owner_urn(owner) == owner


def test_a_tag_may_be_a_urn() -> None:
    assert urns.tag_urn("urn:li:tag:daily") == "urn:li:tag:daily"


class _DagRunKey(DatahubKey):
    cluster: str
    dag_id: str


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_guids_equal_acryl_datahubs(dag_id: str) -> None:
    key = _DagRunKey(cluster="prod", dag_id=dag_id)
    assert urns.guid({"cluster": "prod", "dag_id": dag_id}) == key.guid()


@pytest.mark.parametrize("letter", ["a", "/", "*", "ä", "日", "😀"])
@pytest.mark.parametrize("by", [-1, 0, 1])
def test_gms_drops_urns_that_are_too_long(letter: str, by: int) -> None:
    # GMS measures the URN URL-encoded, as Java's ``URLEncoder`` does it.

    def encoded_length(urn: str) -> int:
        return len(urllib.parse.quote_plus(urn, safe="*-._"))

    room = urns.MAX_URN_BYTES - encoded_length(urns.dataset_urn("hive", "", "PROD"))
    urn = urns.dataset_urn("hive", letter * (room // encoded_length(letter) + by), "PROD")
    assert urns.is_too_long(urn) == (encoded_length(urn) > urns.MAX_URN_BYTES)


long_texts = st.integers(1, 600).flatmap(
    lambda size: st.text(characters, min_size=size, max_size=size)
)


@pytest.mark.slow
@given(words, long_texts, long_texts, long_texts)
@hypothesis_settings(
    deadline=None, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow]
)
def test_flows_jobs_and_runs_of_any_name_are_kept_by_gms(
    orchestrator: str, flow: str, cluster: str, job: str
) -> None:
    flow_urn = FlowIdentity(orchestrator, flow, cluster).urn
    for urn in (flow_urn, urns.datajob_urn(flow_urn, job), urns.dpi_urn(f"{job}.")):
        kind = urn.split(":")[2]
        proposal = {
            "entityType": kind,
            "entityUrn": urn,
            "changeType": "UPSERT",
            "aspectName": "status",
        }
        assert dropping_violations({**proposal, "aspect": {"json": {"removed": False}}}) == []


def test_two_long_names_with_the_same_beginning_are_two_jobs() -> None:
    flow = FlowIdentity("spark", "shop", "default").urn
    first, second = (urns.datajob_urn(flow, "x" * 600 + end) for end in "ab")
    assert first != second
    assert urns.datajob_urn(flow, "x" * 600 + "a") == first
    assert first.startswith(f"urn:li:dataJob:({flow},{'x' * 200}")


def test_a_name_that_just_fits_stays_as_it_is() -> None:
    flow = FlowIdentity("spark", "shop", "default").urn
    fits = "x" * (urns.MAX_URN_BYTES - len(urllib.parse.quote_plus(f"urn:li:dataJob:({flow},)")))
    assert urns.datajob_urn(flow, fits) == f"urn:li:dataJob:({flow},{fits})"
    assert urns.datajob_urn(flow, fits + "x") != f"urn:li:dataJob:({flow},{fits}x)"
