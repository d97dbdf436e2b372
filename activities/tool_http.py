"""The HTTP client that tools are given. It knows whether a request was begun, because it is the one that begins them.

"Not sent" is believed only from here: a connection that could not be made, before any other request of this attempt.
Redirects and transport retries are off: each would be a second request that nobody counted.
"""

from __future__ import annotations

from functools import cache
from ssl import SSLContext

import httpx2

from settled.workflows.errors import NotSent

BEFORE_THE_FIRST_BYTE = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class CountingTransport(httpx2.AsyncBaseTransport):
    """Passes requests on, and says `NotSent` where that is certain.

    One transport serves one attempt of one call.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner
        self.begun = 0
        """Requests that may have left this process."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request, unless no connection can be made.

        Raises:
            NotSent: no connection could be made, and no other request was begun, neither before nor meanwhile.
            LocalProtocolError: it can't be written as it is.
        """
        self.begun += 1
        try:
            return await self._inner.handle_async_request(request)
        except BEFORE_THE_FIRST_BYTE as error:
            if self.begun > 1:
                raise
            self.begun = 0
            raise NotSent(f"no connection to {request.url.host}: {type(error).__name__}") from error
        except httpx2.LocalProtocolError:
            # It quotes the header that is wrong, which may hold a key; and the model is told.
            words = "the request can't be written; a header ends in white space, or has a line break, most likely"
            raise httpx2.LocalProtocolError(words, request=request) from None

    async def aclose(self) -> None:
        """Give back the connections."""
        await self._inner.aclose()


@cache
def trusted() -> SSLContext:
    """The trusted certificates; reading them takes longer than many a call, so it is done once."""
    return httpx2.create_ssl_context(trust_env=False)


def tool_client(seconds: float) -> httpx2.AsyncClient:
    """A client for one attempt of one call.

    Args:
        seconds: the attempt's time budget, which bounds each step of a request.
    """
    # Proxy variables of the environment are not obeyed: a proxy answers for itself, and retries as it likes.
    transport = CountingTransport(httpx2.AsyncHTTPTransport(verify=trusted(), retries=0, trust_env=False))
    return httpx2.AsyncClient(transport=transport, timeout=seconds, follow_redirects=False, trust_env=False)
