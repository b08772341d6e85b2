"""Run applications one after the other in one JVM, each with a Spark context and properties of its own."""

import json, os, runpy, sys, traceback

from pyspark import SparkConf, SparkContext

SparkContext._ensure_initialized(conf=SparkConf())
system = SparkContext._jvm.java.lang.System
for application in json.load(open(sys.argv[1])):
    for name, value in application["properties"].items():
        system.setProperty(name, value)
    os.makedirs(application["work"], exist_ok=True)
    os.chdir(application["work"])
    try:
        runpy.run_path(application["job"], run_name="__main__")
    except Exception:
        traceback.print_exc()
    if SparkContext._active_spark_context:
        SparkContext._active_spark_context.stop()
    print("DONE", application["job"], flush=True)
