"""A Prometheus of Debian over exported figures, on loopback and with a port of its own.

The tests of the export and ``ci/bench/nights.py`` use it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

START_S = 60


@dataclass
class Server:
    """A Prometheus that runs."""

    url: str

    def ask(self, path: str, **words: Any) -> Any:
        query = urllib.parse.urlencode(words, doseq=True)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as answer:
                body = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{words}: {error.read().decode()}") from None
        assert body["status"] == "success", body
        return body["data"]

    def instant(self, expression: str, at: datetime) -> list[dict[str, Any]]:
        return self.ask("query", query=expression, time=at.timestamp())["result"]


def make_blocks(figures: Path, data: Path) -> None:
    """Write the blocks of exported figures (OpenMetrics) to the folder ``data``."""
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(figures), str(data)]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def running(folder: Path, data: Path, config: str = "") -> Iterator[str]:
    """Prometheus over the blocks in ``data``; its address."""
    file, log = folder / "prometheus.yml", folder / "prometheus.log"
    file.write_text(config)
    for _ in range(5):  # another program may take the port meanwhile
        port = free_port()
        command = [
            "prometheus", f"--config.file={file}", f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        with log.open("w") as stream:
            process = subprocess.Popen(command, stdout=stream, stderr=stream)
        try:
            if is_ready(process, f"http://127.0.0.1:{port}"):
                yield f"http://127.0.0.1:{port}"
                return
        finally:
            process.terminate()
            process.wait(START_S)
        if "address already in use" not in log.read_text():
            break
    raise AssertionError(log.read_text())


def is_ready(process: subprocess.Popen[bytes], url: str) -> bool:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer,
        ):
            return answer.status == 200
        time.sleep(0.1)
    return False


def key(labels: dict[str, str]) -> tuple[str, str, str]:
    """Case, metric and location of a series."""
    return labels["case"], labels["metric"], labels.get("location", "")
