from common import F, Window, orders, save

rows = orders("a").select(F.col("id").alias("k"), "key", "amount")
by_key = Window.partitionBy("key").orderBy("k")
save(
    rows.selectExpr(
        "CASE WHEN k > 1 THEN amount WHEN key = 'k2' THEN 0 END AS a_case",
        "if(k > 1, amount, -amount) AS an_if",
        "nvl2(key, amount, 0) AS an_nvl2",
        "nullif(k, amount) AS a_nullif",
        "decode(key, 'k1', amount, 'k2', k) AS a_decode",
        "CASE WHEN CASE WHEN k > 1 THEN key END = 'k1' THEN amount END AS nested",
    )
)
save(
    rows.select(
        F.sum("amount").over(by_key).alias("running"),
        F.lag("amount").over(by_key).alias("before"),
        F.rank().over(by_key).alias("rank"),
        F.row_number().over(by_key).alias("number"),
    ),
    "windows",
)
save(
    rows.groupBy().agg(
        F.max_by("amount", "k").alias("latest"),
        F.expr("sum(amount) FILTER (WHERE k > 1)").alias("some"),
        F.expr("listagg(key, ',') WITHIN GROUP (ORDER BY k)").alias("keys"),
        F.expr("sum(CASE WHEN key = 'k1' THEN amount END)").alias("of_k1"),
    ),
    "groups",
)
