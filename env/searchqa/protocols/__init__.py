"""Action protocols by name. A user's own protocol is an object passed in the name's place."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from searchqa.errors import ConfigError
from searchqa.protocols.base import ActionProtocol
from searchqa.protocols.search_r1 import SearchR1

PROTOCOLS: Mapping[str, ActionProtocol] = MappingProxyType({"search_r1": SearchR1()})


def get_protocol(protocol: str | ActionProtocol) -> ActionProtocol:
    """The protocol of that name, or the given object.

    Raises:
        ConfigError: The name is unknown.
    """
    if not isinstance(protocol, str):
        if not callable(getattr(protocol, "parse", None)):
            raise ConfigError(f"protocol={protocol!r} is neither a name nor an ActionProtocol")
        return protocol
    if protocol not in PROTOCOLS:
        known = ", ".join(sorted(PROTOCOLS))
        raise ConfigError(f"protocol={protocol!r} is unknown; use one of {known}, or an object")
    return PROTOCOLS[protocol]
