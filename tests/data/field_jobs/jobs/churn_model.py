"""Features, training, evaluation and scoring of a churn model, as a data science team schedules it."""

import sys

from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import RandomForestClassifier
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.feature import OneHotEncoder, StandardScaler, StringIndexer, VectorAssembler
from pyspark.ml.functions import vector_to_array
from pyspark.sql import DataFrame, SparkSession, functions as F

LAKE = sys.argv[1]
NUMBERS = ["total", "average", "orders"]

def features(spark: SparkSession) -> DataFrame:
    spent = spark.table("wh.sales").groupBy("customer_id").agg(
        F.sum("amount").alias("total"), F.avg("amount").alias("average"), F.count("order_id").alias("orders"), F.max("day").alias("last_day")
    )
    joined = spent.join(spark.table("wh.people").select("customer_id", "country"), "customer_id")
    return joined.withColumn("churned", (F.col("last_day") < "2026-02-01").cast("double"))

def pipeline() -> Pipeline:
    return Pipeline(
        stages=[
            StringIndexer(inputCol="country", outputCol="country_index", handleInvalid="keep"),
            OneHotEncoder(inputCols=["country_index"], outputCols=["country_vector"]),
            VectorAssembler(inputCols=[*NUMBERS, "country_vector"], outputCol="raw_features"),
            StandardScaler(inputCol="raw_features", outputCol="features"),
            RandomForestClassifier(labelCol="churned", numTrees=2, maxDepth=2, seed=1),
        ]
    )

def train(spark: SparkSession, path: str) -> None:
    rows = spark.table("ml.churn_features").cache()
    training, test = rows.randomSplit([0.7, 0.3], seed=3)
    model = pipeline().fit(training.union(test))
    area = BinaryClassificationEvaluator(labelCol="churned").evaluate(model.transform(rows))
    model.write().overwrite().save(path)
    spark.createDataFrame([("area_under_roc", float(area), rows.count())], "metric STRING, value DOUBLE, rows BIGINT").write.mode(
        "append"
    ).json(f"{LAKE}/out/ch/metrics")
    rows.unpersist()

def score(spark: SparkSession, path: str) -> None:
    scored = PipelineModel.load(path).transform(spark.table("ml.churn_features").drop("churned"))
    scored.select("customer_id", vector_to_array("probability")[1].alias("risk"), F.current_date().alias("scored_on")).write.mode(
        "overwrite"
    ).saveAsTable("ml.churn_scores")
    at_risk = spark.table("ml.churn_scores").where("risk >= 0").join(spark.table("wh.people"), "customer_id")
    at_risk.select("customer_id", "name", F.round("risk", 2).alias("risk")).write.mode("overwrite").parquet(f"{LAKE}/out/ch/at_risk")

if __name__ == "__main__":
    spark = SparkSession.builder.appName("churn").enableHiveSupport().getOrCreate()
    spark.sql("CREATE DATABASE IF NOT EXISTS ml")
    features(spark).write.mode("overwrite").saveAsTable("ml.churn_features")
    train(spark, f"{LAKE}/models/churn")
    score(spark, f"{LAKE}/models/churn")
    spark.stop()
