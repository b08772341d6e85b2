"""Names in the tables of a page."""

from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.visualization.page import _breakable, _first_of


@pytest.mark.parametrize(
    ("name", "html"),
    [
        ("sales.daily_revenue", "sales.daily_revenue"),
        ("warehouse.finance__eu/customers", "warehouse.<wbr>finance__<wbr>eu/<wbr>customers"),
        ("ends.with.a.dot.so.it.is.cut.", "ends.<wbr>with.<wbr>a.<wbr>dot.<wbr>so.<wbr>it.<wbr>is.<wbr>cut."),
        ("<b>&'\" and what else may be there", "&lt;b&gt;&amp;&#39;&#34; and what else may be there"),
    ],
)
def test_only_long_names_wrap_and_only_behind_their_joints(name: str, html: str) -> None:
    assert _breakable(name) == html


@pytest.mark.parametrize(("most", "said"), [(3, "a, b, c"), (2, "a, b and 1 more")])
def test_many_names_are_folded(most: int, said: str) -> None:
    assert _first_of(["a", "b", "c"], most) == said
