"""A query and a copy into a database, each by its own operator of the Spark provider, with lineage.

Needs the connections ``spark_default``; ``shop_database``, a JDBC connection (``host``, ``schema``, and ``conn_prefix``
in its extra); and ``datahub_default``. The environment variable ``SHOP_LAKE`` names the folder that holds
``raw/orders.csv``.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_spark_datahub.operators.spark_commands import SparkJDBCDatahubOperator, SparkSqlDatahubOperator

LAKE = os.environ.get("SHOP_LAKE", "/tmp/shop")
CATALOG = {
    "spark.sql.warehouse.dir": f"{LAKE}/warehouse",
    "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{LAKE}/metastore;create=true",
}

with DAG(
    dag_id="spark_commands_lineage",
    description="Paid orders as a table, and its copy in a database",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args={"datahub_conn_id": "datahub_default"},
    tags=["example", "lineage"],
):
    paid_orders = SparkSqlDatahubOperator(
        task_id="paid_orders",
        name="paid_orders",
        conn_id="spark_default",
        conf={**CATALOG, "spark.sql.catalogImplementation": "hive"},
        sql="CREATE TABLE paid_orders USING parquet AS "
        "SELECT order_id, amount FROM read_files_csv WHERE status = 'PAID'".replace(
            "read_files_csv", f"csv.`{LAKE}/raw/orders.csv`"
        ),
    )
    copy_to_database = SparkJDBCDatahubOperator(
        task_id="copy_to_database",
        spark_app_name="copy_to_database",
        spark_conn_id="spark_default",
        spark_conf=CATALOG,
        cmd_type="spark_to_jdbc",
        metastore_table="paid_orders",
        jdbc_conn_id="shop_database",
        jdbc_table="paid_orders",
        jdbc_driver="org.apache.derby.iapi.jdbc.AutoloadedDriver",
        save_mode="overwrite",
    )
    paid_orders >> copy_to_database
