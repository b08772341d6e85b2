"""A job that is stopped while it writes (SIGTERM, as YARN, Kubernetes and people do it)."""

import os
import signal
import threading
import time
from shop import f, lake, start

spark = start()
orders = spark.read.csv(f"{lake}/raw/orders.csv", header=True, schema="order_id INT, customer_id INT, amount DOUBLE")
orders.select("order_id").write.mode("overwrite").parquet(f"{lake}/out/si/done")


@f.udf("int")
def slowly(number):
    open(f"{lake}/started", "w").close()
    time.sleep(30)
    return number


def stop():
    while not os.path.exists(f"{lake}/started"):
        time.sleep(0.1)
    time.sleep(2)
    os.kill(int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()), signal.SIGTERM)

threading.Thread(target=stop, daemon=True).start()
orders.select(slowly("order_id").alias("order_id")).write.mode("overwrite").parquet(f"{lake}/out/si/in_flight")
