"""Viewers who pan and zoom at random, as many as one likes, against a server of the map."""

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

IN_FLIGHT = 6
"""So many tiles a viewer asks for at the same time, as a browser does."""

SCREEN = (5, 4)
"""So many tiles are on a screen, across and down."""

LEAVES = 0.3
"""The chance that a viewer moves on before all tiles of a screen are there."""

LOOKS = 0.3
"""For about so many seconds a viewer looks at what is there."""


@dataclass
class Tally:
    """What the viewers have seen.

    Attributes:
        seconds: how long each answer took.
        refused: how often there was too much to do, and it was asked again.
        left: how many requests were given up by the viewer.
        errors: what else went wrong.
        bytes: how much was read.
    """

    seconds: list[float] = field(default_factory=list[float])
    refused: int = 0
    left: int = 0
    errors: list[str] = field(default_factory=list[str])
    bytes: int = 0


class Viewer:
    """Somebody who chooses a head, zooms in, pans, zooms out, and never asks for a tile twice."""

    def __init__(self, client: httpx.AsyncClient, info: dict[str, Any], tally: Tally) -> None:
        self.client, self.info, self.tally = client, info, tally
        self.known: set[str] = set()
        self.chance = random.Random()

    async def look(self, until: float) -> None:
        """Look at one head after the other."""
        while time.perf_counter() < until:
            call = self.chance.choice(self.info["calls"])
            head = self.chance.choice(["mean", *range(call["heads"])])
            pool = self.chance.choice(["mean", "max"])
            await self._look_at(call, f"c{call['call']}-h{head}-{pool}", until)

    async def _look_at(self, call: dict[str, Any], tileset: str, until: float) -> None:
        level, x, y = 0, 0.5, 0.5
        for _ in range(self.chance.randint(5, 20)):
            if time.perf_counter() >= until:
                return
            await self._screen(call, tileset, level, x, y)
            await asyncio.sleep(self.chance.expovariate(1 / LOOKS))
            level = min(call["maxZoom"], max(0, level + self.chance.choice([-1, 0, 1, 1])))
            step = 2.0**-level
            y = min(1.0, max(0.0, y + self.chance.uniform(-step, step)))
            # What is causal has its weights along and below the diagonal.
            x = min(1.0, max(0.0, y - abs(self.chance.gauss(0, step))))

    async def _screen(
        self, call: dict[str, Any], tileset: str, level: int, x: float, y: float
    ) -> None:
        wanted = self._tiles(call, tileset, level, x, y)
        tasks = {asyncio.create_task(self._get(path)) for path in wanted[:IN_FLIGHT]}
        left = wanted[IN_FLIGHT:]
        leaves = self.chance.random() < LEAVES
        patience = time.perf_counter() + (self.chance.uniform(0.05, 0.5) if leaves else 3600)
        while tasks:
            done, tasks = await asyncio.wait(
                tasks,
                timeout=max(0.0, patience - time.perf_counter()),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                self.tally.left += len(tasks)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                return
            for _ in done:
                if left:
                    tasks.add(asyncio.create_task(self._get(left.pop(0))))

    def _tiles(
        self, call: dict[str, Any], tileset: str, level: int, x: float, y: float
    ) -> list[str]:
        size = self.info["tileSize"] * 2 ** (call["maxZoom"] - level)
        columns, rows = -(-call["keys"] // size), -(-call["queries"] // size)
        first_x, first_y = int(x * columns) - SCREEN[0] // 2, int(y * rows) - SCREEN[1] // 2
        places = [
            (column, row)
            for row in range(max(0, first_y), min(rows, first_y + SCREEN[1]))
            for column in range(max(0, first_x), min(columns, first_x + SCREEN[0]))
            if not call["causal"] or column <= row
        ]
        paths = [
            f"/data/{self.info['digest']}/tiles/{tileset}/{level}/{column}/{row}.bin"
            for column, row in places
        ]
        return [path for path in paths if path not in self.known]

    async def _get(self, path: str) -> None:
        start = time.perf_counter()
        while True:
            try:
                answer = await self.client.get(path)
            except httpx.HTTPError as error:
                self.tally.errors.append(f"{path}: {error!r}")
                return
            if answer.status_code != 503:
                break
            self.tally.refused += 1
            await asyncio.sleep(float(answer.headers["Retry-After"]))
        if answer.status_code != 200:
            self.tally.errors.append(f"{path}: {answer.status_code} {answer.text[:200]}")
            return
        self.tally.seconds.append(time.perf_counter() - start)
        self.tally.bytes += len(answer.content)
        self.known.add(path)


def load(url: str, viewers: int, seconds: float) -> dict[str, Any]:
    """Let viewers pan and zoom at random.

    Args:
        url: the address of a server on this machine.
        viewers: how many there are.
        seconds: for how long they look.

    Returns:
        `requests`: how many were answered; `errors`: how many failed, and `faults`: how; `refused`
        and `left`: how often the server had too much to do, and the viewer moved on; `p50` and
        `p95` of the time of an answer in seconds; `megabytes` that were read; `rss_before` and
        `rss_after`: the memory of the server in MB.
    """
    server = _server_at(urlsplit(url).port or 80)
    before = server.memory_info().rss
    tally = asyncio.run(_look(url, viewers, seconds))
    ordered = sorted(tally.seconds)

    def quantile(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    return {
        "requests": len(ordered),
        "errors": len(tally.errors),
        "faults": tally.errors,
        "refused": tally.refused,
        "left": tally.left,
        "p50": quantile(0.5),
        "p95": quantile(0.95),
        "megabytes": tally.bytes / 1e6,
        "rss_before": before / 1e6,
        "rss_after": server.memory_info().rss / 1e6,
    }


async def _look(url: str, viewers: int, seconds: float) -> Tally:
    tally = Tally()
    limits = httpx.Limits(max_connections=None)
    options: dict[str, Any] = {"base_url": url, "timeout": 120, "limits": limits}
    async with httpx.AsyncClient(**options, trust_env=False) as client:
        listed = (await client.get("/recordings.json")).json()["recordings"]
        paths = [f"/data/{one['digest']}/info.json" for one in listed]
        infos = [(await client.get(path)).json() for path in paths]
        until = time.perf_counter() + seconds
        everybody = [Viewer(client, infos[number % len(infos)], tally) for number in range(viewers)]
        await asyncio.gather(*(viewer.look(until) for viewer in everybody))
    return tally


def _server_at(port: int) -> psutil.Process:
    """Return the process that listens at a port of this machine."""
    for connection in psutil.net_connections("tcp"):
        if (
            connection.status == psutil.CONN_LISTEN
            and connection.laddr.port == port
            and connection.pid is not None
        ):
            return psutil.Process(connection.pid)
    raise ValueError(f"nobody of this user listens at port {port}")
