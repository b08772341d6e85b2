"""Small files of the driver in any file system that its Spark knows."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class HadoopFiles:
    """Reads and writes texts through Hadoop's file systems."""

    def __init__(self, spark: SparkSession) -> None:
        # There is no Python interface to them but the JVM's own.
        self._context: Any = spark.sparkContext

    def read(self, path: str) -> str | None:
        """A file's text, or ``None`` where there is no such file."""
        system, file = self._system_and_path(path)
        if not system.exists(file):
            return None
        stream = system.open(file)
        try:
            return str(self._context._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Make a file hold a text: whole or not at all, where the file system can rename."""
        system, file = self._system_and_path(path)
        draft = self._path(f"{path}.draft")
        stream = system.create(draft, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        system.delete(file, False)
        system.rename(draft, file)

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing where there is none."""
        system, file = self._system_and_path(path)
        system.delete(file, True)

    def _system_and_path(self, path: str) -> tuple[Any, Any]:
        file = self._path(path)
        return file.getFileSystem(self._context._jsc.hadoopConfiguration()), file

    def _path(self, path: str) -> Any:
        return self._context._jvm.org.apache.hadoop.fs.Path(path)
