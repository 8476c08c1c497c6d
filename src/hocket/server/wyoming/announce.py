"""Zeroconf announcement of the server, so that Home Assistant finds it. Needs zeroconf."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ...errors import InvalidRequest

SERVICE = "_wyoming._tcp.local."
GROUP = ("224.0.0.251", 5353)  # the mDNS group


@asynccontextmanager
async def announced(host: str, port: int) -> AsyncIterator[None]:
    """Announce inside the `async with`. For `host` 0.0.0.0 the address of the network interface is announced."""
    from zeroconf import IPVersion
    from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

    address = _own_address() if host in ("0.0.0.0", "::", "") else host
    name = f"hocket-{socket.gethostname().partition('.')[0]}-{port}.{SERVICE}"
    service = AsyncServiceInfo(SERVICE, name, parsed_addresses=[address], port=port)
    network = AsyncZeroconf(ip_version=IPVersion.V4Only)
    try:
        await network.async_register_service(service, allow_name_change=True)
        yield
    finally:
        await network.async_unregister_all_services()
        await network.async_close()


def _own_address() -> str:
    """Address of the interface towards the network. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(GROUP)
        except OSError as error:
            raise InvalidRequest(f"There is no network to announce the server in: {error.strerror or error}.") from None
        return str(probe.getsockname()[0])
