"""Streams that keep a state in Python: applyInPandasWithState, transformWithStateInPandas, transformWithState; duplicates within a watermark."""

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout
from shop import lake, start

spark = start()
incoming = spark.readStream.schema("order_id INT, customer_id INT, amount DOUBLE, at TIMESTAMP").json(f"{lake}/stream/orders")


def drain(frame, name):
    writer = frame.writeStream.queryName(name).format("parquet").option("path", f"{lake}/out/st/{name}")
    writer.option("checkpointLocation", f"{lake}/checkpoints/st_{name}").trigger(availableNow=True).start().awaitTermination()


def add_up(key, frames, state):
    total = (state.get[0] if state.exists else 0.0) + sum(float(frame["amount"].sum()) for frame in frames)
    state.update((total,))
    yield pd.DataFrame({"buyer": [key[0]], "total": [total]})


class Count(StatefulProcessor):
    def init(self, handle):
        self.count = handle.getValueState("count", "n INT")

    def number(self, more):
        n = (self.count.get()[0] if self.count.exists() else 0) + more
        self.count.update((n,))
        return n

    def close(self):
        pass


class CountFrames(Count):
    def handleInputRows(self, key, rows, timers):
        yield pd.DataFrame({"buyer": [key[0]], "orders": [self.number(sum(len(frame) for frame in rows))]})


class CountRows(Count):
    def handleInputRows(self, key, rows, timers):
        yield Row(buyer=key[0], orders=self.number(sum(1 for _ in rows)))

keyed = incoming.groupBy("customer_id")
drain(keyed.applyInPandasWithState(add_up, "buyer INT, total DOUBLE", "total DOUBLE", "append", GroupStateTimeout.NoTimeout), "totals")
drain(keyed.transformWithStateInPandas(CountFrames(), "buyer INT, orders INT", "Append", "None"), "frames")
drain(keyed.transformWithState(CountRows(), "buyer INT, orders INT", "Append", "None"), "rows")
drain(incoming.withWatermark("at", "10 minutes").dropDuplicatesWithinWatermark(["order_id"]).select("order_id", "amount"), "unique")
spark.stop()
