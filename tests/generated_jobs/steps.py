"""Steps of a generated query: each takes a frame, adds lines, and returns the next frame with its
provenance.

A step for which the frame lacks columns returns ``None``, or raises ``IndexError`` by choosing from
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from tests.generated_jobs.frames import Column, Frame, expression
from tests.generated_jobs.script import PARTS, Held, Item, Script, Shared, Written, of_dataset

Other = Callable[[], Frame]
"""Builds the frame that a step combines its own with."""
Step = Callable[[Script, Random, Frame, Other], Frame | None]


def _items(frame: Frame) -> list[Item]:
    return [(name, name, column) for name, column in frame.columns.items()]


def select(s: Script, rng: Random, frame: Frame, _: Other) -> Frame:
    names = rng.sample(list(frame.columns), rng.randint(1, len(frame.columns)))
    items = [
        (one, rng.choice([one, one, one, s.column(frame)]), frame.columns[one]) for one in names
    ]
    if rng.random() < 0.1:  # Spark finds a column in any case, and names it as the query does
        items = [
            (code.upper(), name.upper() if name == code else name, column)
            for code, name, column in items
        ]
    return s.project(frame, items + s.new(frame, 2, least=0))


def derive(s: Script, rng: Random, frame: Frame, _: Other) -> Frame | None:
    group = rng.choice(["values", "values", "windows"])
    items = s.new(frame, 2, group)
    if not items:
        return None
    if rng.random() < 0.4:
        code, name, column = items[0]
        name = rng.choice([name, *frame.columns])  # an old name gets a new value
        code = code.replace('"', "'")
        return s.frame(
            f'{frame.name}.withColumn("{name}", F.expr("{code}"))',
            frame,
            {**frame.columns, name: column},
        )
    if group == "values" and rng.random() < 0.3:  # the next columns are made of these
        columns = {
            **frame.columns,
            **{name: replace(column, plain=False) for _, name, column in items},
        }
        return s.project(
            frame, [*_items(frame), *items, *s.new(replace(frame, columns=columns), 1)], in_sql=True
        )
    return s.project(frame, [*_items(frame), *items])


def rename(s: Script, rng: Random, frame: Frame, _: Other) -> Frame:
    old, new = rng.choice(list(frame.columns)), s.column(frame)
    columns = {new if name == old else name: one for name, one in frame.columns.items()}
    listed = ", ".join(f'"{name}"' for name in columns)
    code = rng.choice([f'withColumnRenamed("{old}", "{new}")', f"toDF({listed})"])
    return s.frame(f"{frame.name}.{code}", frame, columns)


def drop(s: Script, rng: Random, frame: Frame, _: Other) -> Frame | None:
    name = rng.choice(list(frame.columns))
    columns = {one: column for one, column in frame.columns.items() if one != name}
    return s.frame(f'{frame.name}.drop("{name}")', frame, columns) if columns else None


def arrange(s: Script, rng: Random, frame: Frame, _: Other) -> Frame:
    return s.step(rng.choice(PARTS["arrange"]), frame)


def clean(s: Script, rng: Random, frame: Frame, _: Other) -> Frame:
    if rng.random() < 0.4:
        return s.step(rng.choice(PARTS["clean"]), frame).settled()
    drawn = expression(rng, "", frame, "conditions")
    code, condition = drawn or ("1 = 1", Column(""))
    like = replace(frame.settled(), reads=frame.reads | condition.reads)
    return s.step(rng.choice(PARTS["filters"]), frame, like, condition=code)


def distinct(s: Script, rng: Random, frame: Frame, _: Other) -> Frame:
    template = rng.choice(PARTS["distinct"])
    after = s.step(template, frame).distinct()
    return after if "@c" in template else after.needing(after.columns)


def join(s: Script, rng: Random, frame: Frame, other: Other) -> Frame:
    right, kind = other(), rng.choice("nt")
    how = rng.choice(["inner", "inner", "left", "right", "full", "left_semi", "left_anti", "cross"])
    style = rng.choice(["using", "on"])
    key, of_right = (
        rng.choice(frame.names(kind, firm=True)),
        rng.choice(right.names(kind, firm=True)),
    )
    new = {
        name: key if style == "using" and how != "cross" and name == of_right else s.fresh("r")
        for name in right.columns
    }
    right = s.project(right, [(name, new[name], column) for name, column in right.columns.items()])
    like = frame.beside(right)
    like = replace(
        like, reads=like.reads | frame.columns[key].reads | right.columns[new[of_right]].reads
    )
    optional = {"left": right.reads, "right": frame.reads, "full": frame.reads | right.reads}
    like = replace(like, outer=like.outer | optional.get(how, frozenset()))
    a, b = frame.settled().columns, right.settled().columns
    if how == "cross":
        return s.step("@f.crossJoin(@g)", frame, like, other=right, columns={**a, **b})
    columns = dict(a) if "_" in how else {**a, **b}
    if style == "using":
        columns[key] = _key(a[key], b[key], how)
        columns = {name: columns[name] for name in [key, *(one for one in columns if one != key)]}
    names: dict[str, Any] = {
        "k": key,
        "r": new[of_right],
        "how": how,
        "HOW": how.upper().replace("_", " "),
    }
    return s.step(rng.choice(PARTS[style]), frame, like, other=right, columns=columns, **names)


def _key(a: Column, b: Column, how: str) -> Column:
    """Return the one key that a join by name keeps."""
    if how == "full":
        return replace(a, fragile=b.direct, either=a.either | b.either, firm=a.firm and b.firm)
    first, second = (b, a) if how == "right" else (a, b)
    return replace(first, either=first.either | second.direct | second.either)


def combine(s: Script, rng: Random, frame: Frame, other: Other) -> Frame | None:
    """Combine the frame with another of the same kinds of columns."""
    right, items = other(), list[Item]()
    for name, column in frame.columns.items():
        same = right.names(column.kind)
        drawn = expression(rng, column.kind, right) if not same or rng.random() < 0.3 else None
        source = rng.choice(same) if drawn is None else ""
        items.append((drawn[0], name, drawn[1]) if drawn else (source, name, right.columns[source]))
    right = s.project(right, items)
    how = rng.choice(["union", "union", *PARTS["combine"]])
    like = frame.beside(right)
    if how != "union":
        reads = (one.reads for each in (frame, right) for one in each.columns.values())
        like = replace(like.distinct(), reads=like.reads.union(*reads))
    columns = {
        name: _combined(one, right.columns[name], how) for name, one in frame.columns.items()
    }
    return s.step(rng.choice(PARTS["combine"][how]), frame, like, other=right, columns=columns)


def _combined(left: Column, right: Column, how: str) -> Column:
    if how.startswith("union"):
        return Column.of(left.kind, [left, right])
    left = left.settled()
    return (
        replace(left, either=left.either | right.values | right.either)
        if how == "intersect"
        else left
    )


def group(s: Script, rng: Random, frame: Frame, _: Other) -> Frame | None:
    keys = rng.sample(frame.names(firm=True), min(len(frame.names(firm=True)), rng.randint(0, 2)))
    items = s.new(frame, 3, "aggregates")
    how = rng.choice(["", "", "rollup", "cube", "sets"]) if keys else ""
    if not items:
        return None
    columns = {
        **{key: replace(frame.columns[key], plain=False) for key in keys},
        **{name: one for _, name, one in items},
    }
    like = frame.needing(keys).distinct()
    if how != "sets" and rng.random() < 0.5:
        parts = ", ".join(f'F.expr("{code}").alias("{name}")' for code, name, _ in items)
        named = ", ".join(f'"{key}"' for key in keys)
        return s.frame(f"{frame.name}.{how or 'groupBy'}({named}).agg({parts})", like, columns)
    by = ", ".join(keys)
    by = {"": by, "sets": f"GROUPING SETS (({by}), ({keys[0] if keys else ''}), ())"}.get(
        how, f"{how.upper()}({by})"
    )
    listed = ", ".join([*keys, *(f"{code} AS {name}" for code, name, _ in items)])
    clauses = f" GROUP BY {by}{rng.choice(['', ' HAVING count(*) > 0'])}" if keys else ""
    return s.step(f'spark.sql("SELECT {listed} FROM @v{clauses}")', frame, like, columns=columns)


def pivot(s: Script, rng: Random, frame: Frame, _: Other) -> Frame | None:
    key, by = (
        rng.sample(frame.names("t", firm=True), 2)
        if len(frame.names("t", firm=True)) > 1
        else ("", "")
    )
    value = rng.choice(frame.names())
    if not key or key in ("k1", "k2"):
        return None
    columns = {key: replace(frame.columns[key], plain=False)}
    columns |= {
        name: Column.of(frame.columns[value].kind, [frame.columns[value]]) for name in ("k1", "k2")
    }
    template = f'@f.groupBy("{key}").pivot("{by}", ["k1", "k2"]).agg(F.max("{value}"))'
    return s.step(template, frame, frame.needing([key, by]).distinct(), columns=columns)


def explode(s: Script, rng: Random, frame: Frame, _: Other) -> Frame | None:
    """Turn columns into rows."""
    kind, how, new = rng.choice("nt"), rng.choice(["explode", "unpivot"]), s.column(frame)
    one, two, kept = (
        rng.choice(frame.names(kind)),
        rng.choice(frame.names(kind)),
        rng.choice(list(frame.columns)),
    )
    value = replace(Column.of(kind, [frame.columns[one], frame.columns[two]]), firm=False)
    columns = (
        {**frame.columns, new: value}
        if how == "explode"
        else {"kept": frame.columns[kept], "which": Column("t"), "value": value}
    )
    cast = {"n": "cast({} AS double)", "t": "cast({} AS string)"}[kind]
    names: dict[str, Any] = {"k": kept, "new": new, "one": one, "two": two}
    if how == "unpivot":
        names |= {"one": cast.format(one), "two": cast.format(two)}
    return s.step(rng.choice(PARTS[how]), frame, frame, columns=columns, **names)


def structure(s: Script, rng: Random, frame: Frame, _: Other) -> Frame:
    """Pack columns into a struct, hold it, and take a field out."""
    one, two, new = (
        rng.choice(list(frame.columns)),
        rng.choice(list(frame.columns)),
        s.column(frame),
    )
    how = rng.choice(["", "", ".cache()", ".localCheckpoint()"])
    frame = frame.pinned() if how else frame
    packed = s.step(
        f'@f.withColumn("s", F.struct(F.col("{one}").alias("a"), F.col("{two}").alias("b"))){how}',
        frame,
    )
    if "local" in how:
        s.executed(frame)
    field = rng.choice("ab")
    columns = {
        **frame.columns,
        new: replace(frame.columns[{"a": one, "b": two}[field]], plain=False),
    }
    return s.step(
        f'@f.withColumn("{new}", F.col("s.{field}")).drop("s")', packed, packed, columns=columns
    )


def subquery(s: Script, rng: Random, frame: Frame, other: Other) -> Frame:
    right, kind, new = other(), rng.choice("nt"), s.column(frame)
    how = rng.choice(["subqueries", "subqueries", "scalars", "correlated"])
    key = rng.choice(frame.names(kind, firm=True))
    of_right = rng.choice(right.names("n" if how == "scalars" else kind, firm=True))
    names: dict[str, Any] = {"k": key, "r": of_right, "s": of_right, "new": new}
    read = right.needing([of_right]).read_by([])[0] | frame.columns[key].reads
    like = replace(frame, either=frame.either | right.either | right.reads)
    if how == "subqueries":
        like = replace(like.settled(), reads=like.reads | (read - right.weak), weak=like.weak)
        return s.step(rng.choice(PARTS[how]), frame, like, other=right, **names)
    if how == "correlated":
        names["r"] = of_right = rng.choice(right.names())
    column = replace(Column.of(right.columns[of_right].kind, [right.columns[of_right]]), firm=False)
    column = replace(column, reads=column.reads | read)
    return s.step(
        rng.choice(PARTS[how]),
        frame,
        like,
        other=right,
        columns={**frame.columns, new: column},
        **names,
    )


def hold(s: Script, rng: Random, frame: Frame, _: Other) -> Frame:
    """Cache or checkpoint the frame; a cache may be filled at once."""
    pinned, how = frame.pinned(), rng.choice(["lazy", "lazy", "eager", "table", "plain"])
    if how == "table":
        name = f"{s.name}_{s.fresh('k')}"
        s.add(f'spark.sql("CACHE TABLE {name} AS SELECT * FROM @v")', frame)
        after = s.frame(f'spark.table("{name}")', pinned)
    else:
        after = frame if how == "plain" else s.step(rng.choice(PARTS[how]), pinned)
    if how in ("eager", "table"):
        s.executed(pinned)
    if how == "plain" or rng.random() < 0.4:
        s.add(rng.choice(PARTS["to_driver"]), after)
        s.executed(after, brought=True)
    return after


def stage(s: Script, rng: Random, frame: Frame, _: Other) -> Frame:
    """Write the frame, and read it back; or read what nothing executes."""
    if rng.random() < 0.3:
        s.files()
        return frame
    if rng.random() < 0.5:
        dataset = f"{s.name}/{s.fresh('stage')}"
        s.add(f'@f.write.parquet(f"{{ROOT}}/{dataset}")', frame)
        code = f'spark.read.parquet(f"{{ROOT}}/{dataset}")'
    else:
        dataset, name = s.new_table("s")
        s.add(f'@f.write.saveAsTable("{name}")', frame)
        code = f'spark.table("{name}")'
    s.executed(frame, dataset)
    kinds = frame.kinds()
    s.application.written.append(Written(dataset, code, kinds))
    return s.frame(code, Frame("", {}, frozenset({dataset})), of_dataset(dataset, kinds))


def share(s: Script, rng: Random, frame: Frame, _: Other) -> Frame:
    """Leave the frame to later queries."""
    name, how = f"{s.name}_{s.fresh('g')}", rng.choice(list(PARTS["share"]))
    if how != "plain":
        frame = frame.pinned()
    s.lines.append(f"global {name}")
    s.add(f"{name} = {PARTS['share'][how]}", frame)
    shared = replace(frame, name=name)
    code = name
    if rng.random() < 0.3:
        s.lines.append(f'{name}.createOrReplaceTempView("{name}")')
        code = f'spark.table("{name}")'
    s.application.frames.append(Shared(code, shared))
    return shared


def bring(s: Script, rng: Random, frame: Frame, _: Other) -> Frame:
    """Bring rows of the frame, or a number, to a variable of the driver."""
    name, how = f"{s.name}_{s.fresh('h')}", rng.choice(list(PARTS["bring"]))
    s.lines.append(f"global {name}")
    taken = s.add(rng.choice(PARTS["bring"][how]), frame, h=name)
    if how == "aggregate":
        s.executed(frame.distinct(), "", {column: column for column in taken}, brought=True)
    else:
        s.executed(frame, "", {} if how == "count" else None, brought=True)
    s.application.held.append(Held(name, frame if how == "rows" else None))
    return frame


def show(s: Script, rng: Random, frame: Frame, _: Other) -> Frame:
    s.add(rng.choice(PARTS["show"]), frame)
    s.executed(frame)
    return frame


STEPS: dict[Step, int] = {
    select: 3, derive: 8, rename: 1, drop: 1, arrange: 2, clean: 4, distinct: 2, join: 6, combine: 5, group: 5,
    pivot: 1, explode: 3, structure: 2, subquery: 6, hold: 5, stage: 2,
}  # fmt: skip
"""Steps with their weights."""
SHARED: dict[Step, int] = {**STEPS, share: 8, bring: 5, show: 2}
"""Steps with their weights in applications whose queries share frames, tables and rows."""
COMBINING: tuple[Step, ...] = (join, combine, subquery)
"""Steps that take another frame."""
