"""The script of one generated query, and its truth: sources, statements, executions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import yaml

from tests.generated_jobs.frames import DATA, Column, Edge, Frame, expression

PARTS: dict[str, Any] = yaml.safe_load((DATA / "jobs.yaml").read_text())
FORMATS = ("parquet", "csv", "json", "orc")
TYPES = {"i": "BIGINT", "n": "DOUBLE", "t": "STRING"}
_UUID = "part-0000{}-4b2c7f1e-86a1-4c0e-9d5e-0a1b2c3d4e5f-c000"
_COLUMNS = ("amount:n", "note:t", "qty:i", "city:t", "price:n", "OrderNote:t", "lineNo:i")
_NAME = re.compile(r"@(\w+)")

Item = tuple[str, str, Column]
"""An expression, the column's name, and its provenance."""


@dataclass(frozen=True)
class Written:
    """A dataset that a query wrote and a later one may read again.

    :param code: reads it.
    :param table: its name if rows may be inserted into it, else empty.
    """

    dataset: str
    code: str
    kinds: Mapping[str, str]
    table: str = ""


@dataclass(frozen=True)
class Shared:
    """A frame that several queries use. :param code: names it in any of them."""

    code: str
    frame: Frame


@dataclass(frozen=True)
class Held:
    """A variable of the driver. :param frame: whose rows it holds; ``None`` if it holds a number."""

    variable: str
    frame: Frame | None


@dataclass
class Application:
    """What the queries of an application leave to later ones.

    :ivar brought: datasets whose rows or numbers reached the driver.
    :ivar maybe_brought: datasets that Spark may leave out of what reached it.
    :ivar rows: for each frame of rows that the driver held, by the dataset that stands for it:
        those whose rows the script really had at that time.
    """

    outputs: set[str] = field(default_factory=set)
    written: list[Written] = field(default_factory=list)
    frames: list[Shared] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    brought: set[str] = field(default_factory=set)
    maybe_brought: set[str] = field(default_factory=set)
    rows: dict[str, frozenset[str]] = field(default_factory=dict)


@dataclass
class Script:
    """A query of the job: its lines and its truth. Datasets are paths in the job's folder, or
    tables (``table:…``).

    :param hive: tables may be older than the application, which ``setup`` is for.
    :param application: what earlier queries left; this one adds to it.
    """

    name: str
    database: str
    hive: bool
    application: Application = field(default_factory=Application)
    rng: Random = field(default_factory=Random)
    lines: list[str] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)
    inputs: set[str] = field(default_factory=set)
    either_inputs: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    columns: set[tuple[str, ...]] = field(default_factory=set)
    either_columns: set[tuple[str, ...]] = field(default_factory=set)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    either_pairs: set[tuple[str, str]] = field(default_factory=set)
    _numbers: dict[str, int] = field(default_factory=dict)

    def fresh(self, stem: str) -> str:
        self._numbers[stem] = self._numbers.get(stem, 0) + 1
        return f"{stem}{self._numbers[stem]}"

    def column(self, frame: Frame) -> str:
        """Return a name that no column of the frame has."""
        name = self.fresh("c")
        return name if name not in frame.columns else self.column(frame)

    def add(
        self, template: str, frame: Frame | None = None, other: Frame | None = None, **names: str
    ) -> list[str]:
        """Add a template's lines, and return the frame's columns that its placeholders took."""
        taken: dict[str, str] = {}
        names = {"form": self.rng.choice(FORMATS), **names}

        def fill(match: re.Match[str]) -> str:
            name = match[1]
            if name in ("v", "w"):
                return self._view(frame if name == "v" else other)
            if name in ("f", "g"):
                return (frame if name == "f" else other).name  # type: ignore[union-attr]
            if name in ("c", "k") and name not in names and frame is not None:
                taken[name] = taken.get(name) or self.rng.choice(frame.names(firm=name == "k"))
                return taken[name]
            return names[name]

        self.lines += _NAME.sub(fill, template).split("; ")
        return list(taken.values())

    def _view(self, frame: Frame | None) -> str:
        assert frame is not None
        self.lines.append(f'{frame.name}.createOrReplaceTempView("{self.name}_{frame.name}")')
        return f"{self.name}_{frame.name}"

    def frame(self, code: str, like: Frame, columns: Mapping[str, Column] | None = None) -> Frame:
        """Assign a frame to a new variable."""
        name = self.fresh("f")
        self.lines.append(f"{name} = {code}")
        return replace(like, name=name, columns=dict(like.columns if columns is None else columns))

    def step(
        self,
        template: str,
        frame: Frame,
        like: Frame | None = None,
        columns: Mapping[str, Column] | None = None,
        **names: Any,
    ) -> Frame:
        """Assign the frame of a template. :param like: its columns and reads, if they are not those
        of the frame.
        """
        needed = self.add(template, frame, **names)
        return self.frame(
            self.lines.pop(), (like or frame).needing(needed if like is None else ()), columns
        )

    def project(self, frame: Frame, items: Sequence[Item], *, in_sql: bool = False) -> Frame:
        """Select items of a frame in one of both APIs."""
        style = "SELECT" if in_sql else self.rng.choice(["SELECT", "WITH", "select", "selectExpr"])
        listed = [code if code == name else f"{code} AS {name}" for code, name, _ in items]
        columns = {name: column for _, name, column in items}
        if style.isupper():
            view = self._view(frame)
            view, base = (
                ("base", f"WITH base AS (SELECT * FROM {view}) ") if style == "WITH" else (view, "")
            )
            return self.frame(
                f'spark.sql("{base}SELECT {", ".join(listed)} FROM {view}")', frame, columns
            )
        parts = [f'"{one}"' for one in listed]
        if style == "select":
            parts = [f'F.expr("{code}").alias("{name}")' for code, name, _ in items]
        return self.frame(f"{frame.name}.{style}({', '.join(parts)})", frame, columns)

    def new(self, frame: Frame, most: int, group: str = "values", least: int = 1) -> list[Item]:
        """Return new columns of random expressions."""
        drawn = [
            expression(self.rng, self.rng.choice("nt"), frame, group)
            for _ in range(self.rng.randint(least, most))
        ]
        return [(one[0], self.column(frame), one[1]) for one in drawn if one is not None]

    def executed(
        self,
        frame: Frame,
        output: str = "",
        names: Mapping[str, str] | None = None,
        *,
        brought: bool = False,
    ) -> None:
        """Note that a frame is executed.

        :param names: the columns that are written, by those of the frame.
        :param brought: the driver gets its rows, or a number.
        """
        wanted = {name: name for name in frame.columns} if names is None else names
        read, either = frame.read_by(wanted)
        self._note_sources(read, either, output, brought=brought)
        rows = self.application.rows.keys()
        read, either = read - rows, either - rows
        own = frozenset[str]()
        if not output:  # the driver only takes rows that the job wrote itself
            own = read & (self.outputs | self.application.outputs)
        self.inputs |= read - own
        self.either_inputs |= either | own
        if output:
            self.outputs.add(output)
            self.application.outputs.add(output)
            for name, target in wanted.items():
                self._note_columns(frame.columns[name], output, target)

    def _note_columns(self, column: Column, output: str, target: str) -> None:
        rows = self.application.rows
        self.columns |= {(*edge, output, target) for edge in column.values if edge[0] not in rows}
        self.either_columns |= {
            (*edge, output, target) for edge in column.either if edge[0] not in rows
        }

    def _note_sources(
        self, read: frozenset[str], either: frozenset[str], output: str, *, brought: bool
    ) -> None:
        """Note the pairs of an output, or what reaches the driver.

        Rows of the driver come from what reached it before they became a frame. What reached it
        later, or while the script holds constants, looks the same in a plan: it may count.
        """
        application = self.application
        rows = application.rows
        sources, maybe = read - rows.keys(), either - rows.keys()
        for name in read & rows.keys():
            sources |= rows[name]
        if (read | either) & rows.keys():
            maybe |= application.brought | application.maybe_brought
        if output:
            self.pairs |= {(source, output) for source in sources}
            self.either_pairs |= {(source, output) for source in maybe}
        elif brought:
            application.brought |= sources
            application.maybe_brought |= maybe

    # Sources.

    def source(self) -> Frame:
        return self.rng.choice(
            [
                self.files,
                self.files,
                self.table,
                *([self.literal] if self.rng.random() < 0.1 else []),
            ]
        )()

    def _draw(self) -> list[str]:
        return ["id:i", "key:t", *self.rng.sample(_COLUMNS, self.rng.randint(1, 3))]

    def literal(self) -> Frame:
        rows = 'spark.createDataFrame([(1, "k1"), (2, "k2")], "id BIGINT, key STRING")'
        return self._rows_of_driver(rows, {"id": "n", "key": "t"}, frozenset())

    def _rows_of_driver(
        self, code: str, kinds: Mapping[str, str], sources: frozenset[str]
    ) -> Frame:
        """Return a frame of rows that the driver holds. A dataset stands for them."""
        dataset = f"rows:{self.name}.{self.fresh('rows')}"
        self.application.rows[dataset] = sources
        columns = {name: Column(kind, frozenset({(dataset, name)})) for name, kind in kinds.items()}
        return self.frame(code, Frame("", {}, frozenset({dataset})), columns)

    def constants(self) -> Frame:
        """Return a frame of constants of the query itself.

        ``VALUES`` look in a plan like a frame of pandas that the driver held.
        """
        code = self.rng.choice(PARTS["constants"])
        if "VALUES" in code:
            return self._rows_of_driver(code, {"id": "n", "key": "t"}, frozenset())
        return self.frame(code, Frame("", {}), {"id": Column("n"), "key": Column("t")})

    def reuse(self) -> Frame:
        """Use a frame that an earlier query shares."""
        shared = self.rng.choice(self.application.frames)
        return self.frame(shared.code, shared.frame)

    def reread(self) -> Frame:
        """Read what an earlier query wrote."""
        written = self.rng.choice(self.application.written)
        frame = Frame("", {}, frozenset({written.dataset}))
        return self.frame(written.code, frame, of_dataset(written.dataset, written.kinds))

    def rows_held(self) -> Frame:
        """Make a frame of what an earlier query brought to the driver."""
        held = self.rng.choice(self.application.held)
        templates, kinds = PARTS["number_held"], {"n1": "n", "t1": "t"}
        if held.frame and self.rng.random() < 0.6:
            templates = PARTS["rows_held"]
            kinds = held.frame.kinds()
        code = self.rng.choice(templates).replace("@h", held.variable)
        return self._rows_of_driver(code, kinds, frozenset(self.application.brought))

    def files(self) -> Frame:
        """Write files without Spark, and read them as jobs do."""
        rng, form = self.rng, self.rng.choice(FORMATS)
        folder = f"{self.name}/{self.fresh(rng.choice(['in', 'raw', 'Data', 'orders']))}"
        layout = PARTS["layouts"][rng.choice(list(PARTS["layouts"]))]
        columns, header = self._draw(), rng.random() < 0.8
        ending = f".{form}" if form in ("csv", "json") else f".snappy.{form}"
        part = rng.choice([_UUID, "part-{}"])

        def path_of(name: str) -> str:
            path = re.sub(r"P(\d)", lambda match: part.format(match[1]), name)
            return path if path.endswith("/") else path + ending

        for file in layout["files"]:
            header_of = "" if header or form != "csv" else ", header=False"
            self.lines.append(f'put("{folder}/{path_of(file)}", "{" ".join(columns)}"{header_of})')
        paths = [f"{folder}/{path_of(path)}" for path in layout.get("paths", ())] or [folder]
        datasets = [path.rstrip("/") for path in paths] if layout.get("named") else [folder]
        options = {
            k: v.replace("@folder", folder) if v is not True else v
            for k, v in layout.get("options", {}).items()
        }
        schema, names = self._schema(form, columns, header, options)
        if layout.get("partitioned"):
            names["dt"] = "t"
        found = {
            name: Column(kind, frozenset((one, name) for one in datasets), plain=True, firm=True)
            for name, kind in names.items()
        }
        return self.frame(
            self._reader(form, schema, options, paths), Frame("", {}, frozenset(datasets)), found
        )

    def _schema(
        self, form: str, columns: list[str], header: bool, options: dict[str, Any]
    ) -> tuple[str, dict[str, str]]:
        """Return the schema that the job gives, and kinds of columns as Spark then reads them; sets
        options.
        """
        pairs = [column.split(":") for column in columns]
        kinds = {name: "t" if kind == "t" else "n" for name, kind in pairs}
        options |= {"header": True} if form == "csv" and header else {}
        choice = self.rng.choice(["schema", "inferSchema", ""])
        if choice == "schema":
            return ", ".join(f"{name} {TYPES[kind]}" for name, kind in pairs), kinds
        if form == "json":
            return "", dict(sorted(kinds.items()))
        if form == "csv":
            options |= {choice: True} if choice else {}
            named = [
                (name if header else f"_c{i}", kind) for i, (name, kind) in enumerate(kinds.items())
            ]
            return "", {name: kind if choice else "t" for name, kind in named}
        return "", kinds

    def _reader(self, form: str, schema: str, options: dict[str, Any], paths: list[str]) -> str:
        rng = self.rng
        schemes = ["", "", "file:", "file://"]
        addresses = [f'f"{rng.choice(schemes)}{{ROOT}}/{path}"' for path in paths]
        if len(paths) == 1 and not options and not schema and rng.random() < 0.3:
            return f'spark.sql(f"SELECT * FROM {form}.`{{ROOT}}/{paths[0]}`")'
        values = {
            name: "True" if value is True else f'f"{value}"' for name, value in options.items()
        }
        reader = "spark.read" + (f'.schema("{schema}")' if schema else "")
        reader += "".join(f'.option("{name}", {value})' for name, value in values.items())
        listed = addresses[0] if len(paths) == 1 else f"[{', '.join(addresses)}]"
        if rng.random() < 0.3:
            return f'{reader}.format("{form}").load({listed})'
        return f"{reader}.{form}({', '.join(addresses) if form == 'parquet' else listed})"

    def feed(self) -> Frame:
        """Write files without Spark, and stream them."""
        folder, columns = f"{self.name}/{self.fresh('feed')}", self._draw()
        for number in range(2):
            self.lines.append(f'put("{folder}/part-{number}.parquet", "{" ".join(columns)}")')
        kinds = {column[:-2]: "t" if column[-1] == "t" else "n" for column in columns}
        schema = ", ".join(f"{column[:-2]} {TYPES[column[-1]]}" for column in columns)
        code = f'spark.readStream.schema("{schema}").parquet(f"{{ROOT}}/{folder}")'
        return self.frame(code, Frame("", {}, frozenset({folder})), of_dataset(folder, kinds))

    def table(self) -> Frame:
        """Make a table before the application, or in it if its catalogue does not outlive it, and
        read it.
        """
        stored = self.rng.choice(PARTS["tables"] + PARTS["hive_tables"] * self.hive)
        dataset, name = self.new_table("t")
        if self.hive:
            columns = [column.lower() for column in self._draw()]
            listed = ", ".join(f"{column[:-2]} {TYPES[column[-1]]}" for column in columns)
            values = ", ".join(
                {"i": "1", "n": "2.5", "t": "'k1'"}[column[-1]] for column in columns
            )
            self.setup += [
                f"CREATE TABLE {name} ({listed}) {stored}",
                f"INSERT INTO {name} VALUES ({values})",
            ]
            kinds = {column[:-2]: "t" if column[-1] == "t" else "n" for column in columns}
        else:
            made = self.files()
            self.add(f'@f.write.format("@form").saveAsTable("{name}")', made)
            self.executed(made, dataset)
            kinds = made.kinds()
        reader = self.rng.choice(PARTS["readers"]).replace(
            "@t", self.rng.choice([name, name.lower()])
        )
        return self.frame(reader, Frame("", {}, frozenset({dataset})), of_dataset(dataset, kinds))

    def new_table(self, stem: str) -> tuple[str, str]:
        """Return a table's dataset, and its name as the job writes it."""
        stem = f"{self.name}_{self.fresh(stem)}"
        return (
            f"table:{self.database}.{stem}",
            f"{self.database}.{self.rng.choice([stem, stem, stem.title()])}",
        )


def of_dataset(dataset: str, kinds: Mapping[str, str]) -> dict[str, Column]:
    """Return the columns of a dataset, as a frame that reads it has them."""
    edges: dict[str, frozenset[Edge]] = {name: frozenset({(dataset, name)}) for name in kinds}
    return {name: Column(kind, edges[name], plain=True, firm=True) for name, kind in kinds.items()}
