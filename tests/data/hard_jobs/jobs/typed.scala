import org.apache.spark.sql.{Dataset, SparkSession}
import org.apache.spark.sql.streaming.{GroupState, GroupStateTimeout, OutputMode, Trigger}

/** Typed Scala: streams whose rows a function makes, with and without a state; rows of tuples that are swapped; groups. */
case class Order(order_id: Int, customer_id: Int, amount: Double, at: java.sql.Timestamp)
case class Swapped(customer_id: Int, order_id: Int, twice: Double, when: java.sql.Timestamp)
case class Total(buyer: Int, total: Double)

object Typed {
  def main(args: Array[String]): Unit = {
    val lake = args(0)
    val spark = SparkSession.builder.getOrCreate()
    import spark.implicits._
    val incoming = spark.readStream.schema("order_id INT, customer_id INT, amount DOUBLE, at TIMESTAMP").json(s"$lake/stream/orders").as[Order]
    def drain(rows: Dataset[_], name: String): Unit = {
      val writer = rows.toDF().writeStream.queryName(name).format("parquet").option("path", s"$lake/out/ty/$name")
      writer.option("checkpointLocation", s"$lake/checkpoints/ty_$name").trigger(Trigger.AvailableNow()).start().awaitTermination()
    }
    drain(incoming.map(o => Swapped(o.order_id, o.customer_id, o.amount * 2, o.at)), "mapped")
    val add = (key: Int, rows: Iterator[Order], state: GroupState[Double]) => {
      val sum = state.getOption.getOrElse(0.0) + rows.map(_.amount).sum
      state.update(sum)
      Iterator(Total(key, sum))
    }
    drain(incoming.groupByKey(_.customer_id).flatMapGroupsWithState(OutputMode.Append(), GroupStateTimeout.NoTimeout())(add), "totals")
    val sales = spark.read.option("header", "true").schema("order_id INT, customer_id INT, amount DOUBLE, day STRING").csv(s"$lake/raw/orders.csv")
    sales.select("order_id", "customer_id").as[(Int, Int)].map { case (a, b) => (b, a) }.toDF("order_id", "customer_id").write.parquet(s"$lake/out/ty/pairs")
    sales.as[(Int, Int, Double, String)].filter(_._3 > 1).select("order_id", "day").write.parquet(s"$lake/out/ty/kept")
    sales.groupByKey(_.getAs[Int]("customer_id")).mapGroups((key, rows) => (key, rows.size)).toDF("buyer", "n").write.parquet(s"$lake/out/ty/sizes")
    spark.stop()
  }
}
