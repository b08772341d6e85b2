"""Hand-written jobs with truth: a case is a function of c; names: a..h files below lake, t* tables of shop, o* output files."""
import datetime, json, os, sys, traceback

CASES = {}

def case(inputs, out, either_in="", indirect=None, needs=""):
    def keep(function):
        CASES[function.__name__] = dict(function=function, inputs=inputs.split(), out=out, either_in=either_in.split(), indirect=indirect or {}, needs=needs)
        return function
    return keep

def ds(case_name, name):
    if ":" in name:
        return name
    if name[0] == "t":
        return f"hive:shop.{case_name}_{name}"
    return f"file:{'out' if name[0] == 'o' else 'lake'}/{case_name}_{name}"

def col(case_name, text):
    name, _, column = text.partition(".")
    return [ds(case_name, name.replace("%20", " ")), column.replace("%20", " ").replace("%2E", ".")]

def truth(name):
    c, outputs = CASES[name], {}
    for out, columns in c["out"].items():
        cells = {}
        for item in columns.split():
            column, _, rest = item.partition("=")
            direct, _, either = rest.partition("~")
            cells[column.replace("%20", " ")] = {"direct": [col(name, x) for x in direct.split("|") if x], "either": [col(name, x) for x in either.split("|") if x]}
        outputs[ds(name, out)] = cells
    import inspect
    return {"name": name, "inputs": sorted(ds(name, x) for x in c["inputs"]), "either_inputs": sorted(ds(name, x) for x in c["either_in"]), "outputs": outputs,
            "indirect": {ds(name, out): {k: [col(name, x) for x in v.split("|")] for k, v in cols.items()} for out, cols in c["indirect"].items()},
            "source": inspect.getsource(c["function"])}

class C:
    def __init__(self, spark, root, name):
        self.spark, self.root, self.name = spark, root, name
    def path(self, n):
        return f"{self.root}/lake/{self.name}_{n}"
    def outp(self, n="o"):
        return f"{self.root}/out/{self.name}_{n}"
    def put(self, n, fmt="parquet", part=""):
        import pyarrow as pa
        from pyarrow import parquet
        p = self.path(n) + (f"/{part}" if part else "")
        os.makedirs(p, exist_ok=True)
        d = datetime.date
        t = pa.table({"id": pa.array([1, 2, 3, 4], pa.int64()), "key": ["k1", "k2", "k1", "k3"], "amount": [1.5, 2.5, 3.5, 4.5], "qty": pa.array([5, 6, 7, 8], pa.int64()),
            "day": [d(2024, 1, 1), d(2024, 1, 2), d(2024, 1, 3), d(2024, 2, 1)], "city": ["Rome", "Oslo", "Rome", "Bern"], "tags": [["x", "y"], ["x"], ["z"], []],
            "payload": ['{"a": 1, "b": {"c": "x"}}'] * 4, "address": pa.array([{"city": "Rome", "zip": "01"}] * 4, pa.struct([("city", pa.string()), ("zip", pa.string())]))})
        if fmt == "parquet":
            parquet.write_table(t, f"{p}/part-0.parquet")
        elif fmt == "csv":
            open(f"{p}/part-0.csv", "w").write("id,key,amount\n1,k1,1.5\n2,k2,2.5\n")
        elif fmt == "json":
            open(f"{p}/part-0.json", "w").write('{"id": 1, "key": "k1", "amount": 1.5}\n{"id": 2, "key": "k2", "amount": 2.5}\n')
        return self.path(n)
    def df(self, n):
        if not os.path.exists(self.path(n)):
            self.put(n)
        schema = "id BIGINT, key STRING, amount DOUBLE, qty BIGINT, day DATE, city STRING, tags ARRAY<STRING>, payload STRING, address STRUCT<city: STRING, zip: STRING>"
        return self.spark.read.schema(schema).parquet(self.path(n))
    def views(self, names):
        for n in names.split():
            self.df(n).createOrReplaceTempView(n)
    def t(self, n):
        return f"shop.{self.name}_{n}"
    def table(self, n, columns="id BIGINT, key STRING, amount DOUBLE", rest="USING parquet", fill=True):
        self.spark.sql(f"CREATE TABLE {self.t(n)} ({columns}) {rest}")
        return self.t(n)
    def sql(self, text):
        return self.spark.sql(text)
    def out(self, frame, n="o", **kw):
        frame.write.mode("overwrite").parquet(self.outp(n), **kw)
    def sqlout(self, text, n="o"):
        self.out(self.spark.sql(text), n)

def main(module_file):
    root = os.path.dirname(os.path.abspath(module_file))
    names = [n for n in os.environ.get("CASES", "").split() if n] or list(CASES)
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.getOrCreate()
    spark.sql("CREATE DATABASE IF NOT EXISTS shop")
    failed = []
    for name in names:
        try:
            CASES[name]["function"](C(spark, root, name))
        except Exception:
            failed.append(name)
            with open(f"{root}/failed.txt", "a") as f:
                f.write(f"--- {name}\n{traceback.format_exc()}\n")
        try:
            spark.catalog.clearCache()
            spark.sql("USE default")
            for v in spark.catalog.listTables():
                if v.isTemporary:
                    spark.catalog.dropTempView(v.name)
        except Exception:
            pass
    json.dump([truth(n) for n in names], open(f"{root}/truth.json", "w"), indent=1)
    spark.stop()
    print(f"{len(failed)} failed: {failed}")
from pyspark.sql import functions as F, Window

@case("a", {"o": "id=a.id x=a.key|a.city~a.qty y=a.amount|a.qty~a.qty"})
def struct_when(c):
    d = c.df("a").withColumn("s", F.when(F.col("qty") > 6, F.struct(F.col("key").alias("x"), F.col("amount").alias("y"))).otherwise(F.struct(F.col("city").alias("x"), F.col("qty").cast("double").alias("y"))))
    c.out(d.cache().select("id", "s.x", "s.y"))

@case("a b", {"o": "id=a.id x=b.key|a.key y=b.amount|a.amount"})
def struct_coalesce(c):
    b = c.df("b").select(F.col("id").alias("bid"), F.struct(F.col("key").alias("x"), F.col("amount").alias("y")).alias("bs")); a = c.df("a").select("id", F.struct(F.col("key").alias("x"), F.col("amount").alias("y")).alias("as_"))
    d = a.join(b, F.col("id") == F.col("bid"), "left").select("id", F.coalesce("bs", "as_").alias("s")); c.out(d.localCheckpoint().select("id", "s.x", "s.y"))

@case("a", {"o": "id=a.id x=a.key y=a.amount"})
def struct_cast(c):
    d = c.df("a").select("id", F.struct("key", "amount").cast("struct<x: string, y: double>").alias("s")).localCheckpoint(); c.out(d.select("id", "s.x", "s.y"))

@case("a", {"o": "id=a.id t=a.tags k=a.key"})
def struct_transform(c):
    d = c.df("a").select("id", F.explode(F.expr("transform(tags, t -> named_struct('t', t, 'k', key))")).alias("s")); c.out(d.select("id", "s.t", "s.k"))

@case("a", {"o": "id=a.id x=a.key y=a.amount"})
def struct_array_agg(c):
    d = c.df("a").groupBy("id").agg(F.sort_array(F.collect_list(F.struct("day", "key", "amount"))).alias("l")); c.out(d.select("id", F.col("l")[0]["key"].alias("x"), F.element_at("l", -1)["amount"].alias("y")))

@case("a", {"o": "id=a.id x=a.key y=a.amount"})
def struct_nested_deep(c):
    d = c.df("a").select("id", F.struct(F.struct(F.col("key").alias("k"), F.struct(F.col("amount").alias("v")).alias("m")).alias("i")).alias("s")).localCheckpoint(); c.out(d.select("id", F.col("s.i.k").alias("x"), F.col("s.i.m.v").alias("y")))

@case("a", {"o": "id=a.id x=a.key y=a.amount"})
def struct_map(c):
    d = c.df("a").select("id", F.create_map(F.lit("p"), F.struct("key", "amount")).alias("m")).localCheckpoint(); c.out(d.select("id", F.col("m")["p"]["key"].alias("x"), F.col("m")["p"]["amount"].alias("y")))

@case("a", {"o": "id=a.id x=a.key y=a.amount"})
def struct_json(c):
    d = c.df("a").select("id", F.to_json(F.struct("key", "amount")).alias("j")).localCheckpoint()
    c.out(d.select("id", F.get_json_object("j", "$.key").alias("x"), F.from_json("j", "amount DOUBLE")["amount"].alias("y")))
CASES["struct_json"]["out"] = {"o": "id=a.id x=a.key|a.amount y=a.amount|a.key"}

@case("a", {"o": "id=a.id city=a.address~a.key z=a.key"})
def struct_with_field_chain(c):
    d = c.df("a").withColumn("address", F.col("address").withField("zip", F.upper("key")).withField("n", F.col("qty")))
    d.createOrReplaceTempView("w"); c.sqlout("SELECT id, address.city, address.zip AS z FROM w")
CASES["struct_with_field_chain"]["out"] = {"o": "id=a.id city=a.address z=a.key"}

@case("a", {"o": "id=a.id x=a.city|a.key amount=a.amount y=a.payload"})
def literal_paren(c):
    c.views("a"); c.sqlout("SELECT id, concat(city, ' :( ', key) AS x, amount, replace(payload, '{', '') AS y FROM a")

@case("a", {"o": "key=a.key x=a.city n=a.amount"})
def literal_paren_aggregate(c):
    c.views("a"); c.sqlout("SELECT key, concat_ws(' [', collect_list(city)) AS x, sum(amount) AS n FROM a GROUP BY key")

@case("a", {"o": "id=a.id p=a.payload q=a.city amount=a.amount"})
def regex_paren(c):
    c.views("a"); c.sqlout("SELECT id, split(payload, '[(]')[0] AS p, regexp_replace(city, '\\\\)', '') AS q, amount FROM a")

@case("a", {"o": "id=a.id x=a.city|a.key amount=a.amount"})
def literal_comma_as(c):
    c.views("a"); c.sqlout("SELECT id, concat(city, ', ', key, ' AS y#5') AS x, amount FROM a")

@case("a", {"o": "id=a.id kpi=a.amount~a.city other=a.qty~a.city"})
def case_literal_paren(c):
    c.views("a"); c.sqlout("SELECT id, CASE WHEN city = 'a(b' THEN amount ELSE 0 END AS kpi, CASE WHEN city IN ('x) THEN', 'y') THEN qty ELSE 0 END AS other FROM a")

@case("a b", {"o": "id=a.id v=b.amount~a.key|b.key"})
def join_literal(c):
    c.views("a b"); c.sqlout("SELECT a.id, b.amount AS v FROM a LEFT JOIN b ON a.key = b.key AND b.city <> 'LeftSemi' AND a.city <> '(LeftAnti'")

@case("a", {"o": "LeftAnti=a.id x=a.amount"})
def column_named_leftanti(c):
    l = c.df("a").select(F.col("id").alias("LeftAnti"), F.col("key").alias("k")); r = c.df("a").select(F.col("key").alias("k2"), F.col("amount").alias("x")); c.out(l.join(r, F.col("k") == F.col("k2"), "inner").select("LeftAnti", "x"))

@case("a b", {"o": "id=a.id y=b.qty"})
def join_residual_literal(c):
    c.views("a b"); c.sqlout("SELECT a.id, b.qty AS y FROM a JOIN b ON a.id = b.id AND concat(a.city, b.city) <> 'x LeftAnti y'")

@case("a", {"o": "id=a.id w=a.amount~a.key|a.day r=~a.key|a.amount|a.city"})
def window_literal(c):
    c.views("a"); c.sqlout("SELECT id, sum(amount) OVER (PARTITION BY concat(key, '(') ORDER BY day) AS w, rank() OVER (PARTITION BY key ORDER BY amount DESC, city) AS r FROM a")

@case("a b", {"o1": "id=a.id|b.id k=a.key|b.key"})
def loop_append(c):
    for i, n in enumerate("abab"):
        c.df(n).filter(F.col("id") > i).select("id", F.col("key").alias("k")).write.mode("append").parquet(c.outp("o1"))

@case("a b", {"o": "id=a.id s=a.amount|b.amount"})
def checkpoint_branching(c):
    x = c.df("a").select("id", F.col("amount").alias("v")).localCheckpoint(); y = c.df("b").select("id", F.col("amount").alias("v")).localCheckpoint()
    z = x.union(y).groupBy("id").agg(F.sum("v").alias("s")).localCheckpoint(); c.out(z)
CASES["checkpoint_branching"]["out"]["o"] = "id=a.id|b.id s=a.amount|b.amount"

@case("a b", {"o": "id=a.id k=a.key x=b.city"})
def checkpoint_distinct_join(c):
    x = c.df("a").select("id", "key").distinct().localCheckpoint(); y = c.df("b").dropDuplicates(["id"]).select(F.col("id").alias("i2"), F.col("city").alias("x")).checkpoint() if False else c.df("b").dropDuplicates(["id"]).select(F.col("id").alias("i2"), F.col("city").alias("x")).localCheckpoint()
    c.out(x.join(y, F.col("id") == F.col("i2")).select("id", F.col("key").alias("k"), "x"))

@case("a", {"o": "id=a.id k=a.key"})
def checkpoint_of_sql_alias(c):
    c.views("a"); d = c.sql("SELECT id, key AS k FROM (SELECT id AS id, key AS key FROM a)").localCheckpoint(); c.out(d)

@case("a", {"o": "id=a.id k=a.city"})
def checkpoint_of_view_plain(c):
    c.df("a").select("id", "city").createOrReplaceTempView("w1"); d = c.spark.table("w1").localCheckpoint(); c.out(d.select("id", F.col("city").alias("k")))

@case("a", {"o": "id=a.id n=a.amount"})
def checkpoint_window(c):
    d = c.df("a").withColumn("r", F.row_number().over(Window.partitionBy("key").orderBy("day"))).filter("r = 1").select("id", F.col("amount").alias("n")).localCheckpoint(); c.out(d)

@case("a b", {"o": "id=a.id y=a.key|b.key"})
def checkpoint_full_using(c):
    d = c.df("a").select("id", "key").join(c.df("b").select("id", "key"), ["id", "key"], "full").localCheckpoint(); c.out(d.select("id", F.col("key").alias("y")))
CASES["checkpoint_full_using"]["out"]["o"] = "id=a.id|b.id y=a.key|b.key"

if __name__ == "__main__":
    main(__file__)
