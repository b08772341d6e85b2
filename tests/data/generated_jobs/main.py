

failures = {}
for query in QUERIES:
    try:
        query()
    except Exception:
        failures[query.__name__] = traceback.format_exc()
with open("failures.json", "w") as file:
    json.dump(failures, file, indent=1)
spark.stop()
