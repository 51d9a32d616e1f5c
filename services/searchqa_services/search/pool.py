"""A bounded pool of threads between the event loop and the search.

Searching is CPU work: on the loop it would serve one request at a time and starve /health, and in
an unbounded pool it would queue without end. Here a full queue refuses at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from searchqa_services.search.schema import Unavailable

T = TypeVar("T")


class WorkPool:
    """Runs work in threads for one event loop; all methods belong to that loop's thread."""

    def __init__(self, threads: int, queue_size: int) -> None:
        """Allow ``threads`` pieces of work to run and ``queue_size`` more to wait."""
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="search")
        self._capacity = threads + queue_size
        self.in_flight = 0

    def check(self) -> None:
        """Refuse when nothing more may wait.

        Raises:
            Unavailable: The queue is full.
        """
        if self.in_flight >= self._capacity:
            raise Unavailable(f"Overloaded: {self.in_flight} requests are in work; try again.")

    async def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread and return its result.

        Raises:
            Unavailable: The queue is full.
        """
        self.check()
        loop = asyncio.get_running_loop()
        self.in_flight += 1
        future = self._executor.submit(work)
        # Released when the thread is free, even if the client has gone in the meantime.
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._release))
        return await asyncio.wrap_future(future)

    def _release(self) -> None:
        self.in_flight -= 1

    def close(self) -> None:
        """Finish what runs, drop what waits."""
        self._executor.shutdown(cancel_futures=True)
