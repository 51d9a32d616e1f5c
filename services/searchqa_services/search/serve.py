"""Run the service under uvicorn, with the connection settings that training clients need."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from searchqa_services.search.app import create_app
from searchqa_services.search.engine.errors import InvalidParameter
from searchqa_services.search.settings import Settings

_BACKLOG = 2048  # a trainer opens hundreds of pooled connections at once
_GRACE_S = 10


def serve(settings: Settings, listener: socket.socket) -> None:
    """Serve on a bound socket until interrupted."""
    with suppress(KeyboardInterrupt):  # the status of an interrupted server is that it has ended
        if settings.workers == 1:
            uvicorn.Server(server_config(settings, create_app(settings))).run(sockets=[listener])
        else:
            _export(settings)
            config = server_config(settings, "searchqa_services.search.app:create_app")
            Multiprocess(config, sockets=[listener]).run()


def listen(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket; clients that come before the server is up wait.

    Naming the TCP protocol matters: asyncio sets TCP_NODELAY only on sockets that do, and without
    it every answer waits for the client's delayed acknowledgement.

    Raises:
        InvalidParameter: The address cannot be bound.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, socket.IPPROTO_TCP)
    except OSError as error:
        raise InvalidParameter(f"cannot listen on {host}:{port}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, os.name != "nt")
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidParameter(f"cannot listen on {host}:{port}: {error.strerror}") from error
    listener.set_inheritable(True)
    return listener


def server_config(settings: Settings, app: FastAPI | str) -> uvicorn.Config:
    """Return the uvicorn configuration for an application or the name of its factory."""
    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        workers=settings.workers,
        access_log=False,
        backlog=_BACKLOG,
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=_GRACE_S,
    )


def _export(settings: Settings) -> None:
    # Worker processes build the application anew, from the environment.
    for name, value in settings.model_dump(exclude_none=True).items():
        os.environ[f"SEARCHQA_{name.upper()}"] = str(value)
