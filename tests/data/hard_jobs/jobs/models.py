"""Models of spark.ml: trained, saved, loaded and applied."""

from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import LogisticRegression, LogisticRegressionModel
from pyspark.ml.feature import StringIndexer, VectorAssembler
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from shop import lake, raw, start

spark = start()
orders = raw("orders")
labelled = orders.selectExpr("*", "double(order_id % 2) AS label")
indexer = StringIndexer(inputCol="day", outputCol="day_index", handleInvalid="keep")
assembler = VectorAssembler(inputCols=["amount", "day_index"], outputCol="features")
regression = LogisticRegression(maxIter=2)
model = Pipeline(stages=[indexer, assembler, regression]).fit(labelled)
model.write().overwrite().save(f"{lake}/models/pipeline")
model.stages[-1].write().overwrite().save(f"{lake}/models/regression")
PipelineModel.load(f"{lake}/models/pipeline").transform(labelled).select("order_id", "prediction").write.mode(
    "overwrite"
).parquet(f"{lake}/out/ml/predicted")
LogisticRegressionModel.load(f"{lake}/models/older").transform(assembler.transform(indexer.fit(labelled).transform(labelled))).select(
    "order_id", "prediction"
).write.mode("overwrite").parquet(f"{lake}/out/ml/older")
grid = ParamGridBuilder().addGrid(regression.regParam, [0.0, 0.1]).build()
validated = CrossValidator(
    estimator=Pipeline(stages=[indexer, assembler, regression]), estimatorParamMaps=grid,
    evaluator=BinaryClassificationEvaluator(), numFolds=2,
).fit(labelled)
validated.write().overwrite().save(f"{lake}/models/validated")
spark.stop()
