"""An incremental load: a watermark table, the rows after it, a folder for each day, and the watermark written anew."""
import datetime
from shop import f, lake, raw, start

spark = start(hive=True)
last = spark.table("ctl.watermarks").where("job = 'sales'").agg(f.max("last_day")).first()[0]
fresh = spark.table("wh.sales").where(f.col("day") > last)
fresh.select("order_id", "amount", "day").write.insertInto("inc.sales_clean")
# The new watermark comes from what was loaded, by way of the driver.
newest = fresh.agg(f.max("day")).first()[0]
spark.sql(f"INSERT INTO ctl.watermarks VALUES ('sales', '{newest}')")
# A folder for each day, by a loop; its name is a partition, or a date.
first = datetime.date(2026, 1, 1)
for number in range(12):
    day = first + datetime.timedelta(days=number)
    rows = spark.table("wh.sales").where("customer_id > 0").select("order_id", f.lit(str(day)).alias("loaded"), "amount")
    rows.write.mode("overwrite").parquet(f"{lake}/out/inc/daily/dt={day}")
    if number < 3:
        rows.write.mode("overwrite").json(f"{lake}/out/inc/by_date/{day:%Y/%m/%d}")
# One day again, from another source: late data.
late = raw("orders")
late.selectExpr("order_id", "'2026-01-01' AS loaded", "amount").write.mode("append").parquet(f"{lake}/out/inc/daily/dt=2026-01-01")
# All days, and two of them.
spark.read.parquet(f"{lake}/out/inc/daily").groupBy("dt").agg(f.sum("amount").alias("total")).write.orc(f"{lake}/out/inc/totals")
spark.read.option("basePath", f"{lake}/out/inc/daily").parquet(
    f"{lake}/out/inc/daily/dt=2026-01-01", f"{lake}/out/inc/daily/dt=2026-01-02"
).select("dt", "order_id").write.orc(f"{lake}/out/inc/two_days")
spark.stop()
