"""R75: "not sent" is believed only from our own client, and only where it can be known."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from settled.activities.tool_errors import Phase, failure_of
from settled.activities.tool_http import CountingTransport, tool_client
from settled.workflows.errors import NotSent

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Behaviour = Callable[["Peer", asyncio.StreamWriter], None]


class Peer:
    """A server that counts connections and request heads, and then does as it is told."""

    def __init__(self, behaves: Behaviour, *, reads: bool = True) -> None:
        self.url = ""
        self.connections = 0
        self.heads: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self._behaves = behaves
        self._reads = reads

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            if not self._reads:
                self._behaves(self, writer)
                await reader.read()
            while not writer.is_closing():
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                self._behaves(self, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def answer(data: bytes) -> Behaviour:
    return lambda _, writer: writer.write(data)


def hang_up(_: Peer, writer: asyncio.StreamWriter) -> None:
    writer.close()


def reset(_: Peer, writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


@asynccontextmanager
async def peer(behaves: Behaviour, *, reads: bool = True) -> AsyncIterator[Peer]:
    served = Peer(behaves, reads=reads)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        yield served
    finally:
        server.close()
        for writer in served.writers:
            writer.close()


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which every connection is refused, for as long as the test lasts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/"


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with tool_client(5.0) as client:
        yield client


# What is known not to have been sent


async def test_r75_a_refused_connection_is_not_sent(http: httpx2.AsyncClient, nobody: str) -> None:
    with pytest.raises(NotSent, match=r"^no connection to 127\.0\.0\.1: ConnectError$") as raised:
        await http.post(nobody, json={"order": "1001"})
    assert failure_of(raised.value).phase is Phase.BEFORE_SEND


async def test_r75_a_connection_that_never_became_a_safe_one_is_not_sent(http: httpx2.AsyncClient) -> None:
    """A handshake is no request: nothing of it has left."""
    async with peer(answer(b"I speak no TLS\r\n"), reads=False) as server:
        with pytest.raises(NotSent):
            await http.post(server.url.replace("http:", "https:"), json={"order": "1001"})


async def test_r75_a_second_try_of_what_was_not_sent_is_the_first_request_again(
    http: httpx2.AsyncClient, nobody: str
) -> None:
    for _ in range(3):
        with pytest.raises(NotSent):
            await http.get(nobody)
    async with peer(answer(OK)) as server:
        assert (await http.get(server.url)).text == "ok"


# What may have happened


async def test_r75_a_refused_connection_after_another_request_proves_nothing(
    http: httpx2.AsyncClient, nobody: str
) -> None:
    """The first request of the attempt may have been the one with the effect."""
    async with peer(answer(OK)) as server:
        await http.post(server.url, json={"order": "1001"})
    with pytest.raises(httpx2.ConnectError) as raised:
        await http.get(nobody)
    assert failure_of(raised.value).phase is Phase.AFTER_SEND


async def test_r75_nor_does_it_after_a_request_that_failed(http: httpx2.AsyncClient, nobody: str) -> None:
    async with peer(reset) as server:
        with pytest.raises(httpx2.ReadError):
            await http.post(server.url)
    with pytest.raises(httpx2.ConnectError):
        await http.post(nobody)


@pytest.mark.parametrize("behaves", [reset, hang_up, answer(b"\x00\x01\x02\r\n\r\n")], ids=["reset", "fin", "garbage"])
async def test_r75_a_server_that_read_the_request_and_went_away_is_unclear(
    http: httpx2.AsyncClient, behaves: Behaviour
) -> None:
    async with peer(behaves) as server:
        with pytest.raises(httpx2.TransportError) as raised:
            await http.post(server.url, json={"order": "1001"})
        assert (server.connections, len(server.heads)) == (1, 1), "nobody tried it again"
    assert not isinstance(raised.value, NotSent)
    assert failure_of(raised.value).phase is Phase.AFTER_SEND


@pytest.mark.parametrize("behaves", [reset, hang_up], ids=["reset", "fin"])
async def test_r75_so_is_a_server_that_went_away_before_reading(http: httpx2.AsyncClient, behaves: Behaviour) -> None:
    """It may have: whether it read anything, nobody can tell from here."""
    async with peer(behaves, reads=False) as server:
        with pytest.raises(httpx2.TransportError) as raised:
            await http.post(server.url, json={"order": "1001"})
        assert server.connections == 1
    assert not isinstance(raised.value, NotSent)


async def test_r75_so_is_a_server_that_does_not_answer_in_time() -> None:
    async with peer(lambda _, __: None) as server, tool_client(0.1) as http:
        with pytest.raises(httpx2.ReadTimeout):
            await http.post(server.url, json={"order": "1001"})
        assert len(server.heads) == 1


class Scripted(httpx2.AsyncBaseTransport):
    """What can't be had from a real network at will: failures of a kind, in an order."""

    def __init__(self, **outcomes: Exception | asyncio.Event) -> None:
        self.outcomes = outcomes
        self.waiting = asyncio.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        outcome = self.outcomes[request.url.host]
        if isinstance(outcome, asyncio.Event):
            self.waiting.set()
            await outcome.wait()
            raise httpx2.ConnectError("refused after a while")
        raise outcome


BEFORE = [httpx2.ConnectError("x"), httpx2.ConnectTimeout("x"), httpx2.PoolTimeout("x")]
AFTER = [
    httpx2.ReadError("x"),
    httpx2.WriteError("x"),
    httpx2.CloseError("x"),
    httpx2.ReadTimeout("x"),
    httpx2.WriteTimeout("x"),
    httpx2.RemoteProtocolError("x"),
    httpx2.LocalProtocolError("x"),
    httpx2.ProxyError("x"),
    httpx2.UnsupportedProtocol("x"),
    OSError("x"),
]


@pytest.mark.parametrize("error", BEFORE, ids=lambda error: type(error).__name__)
async def test_r75_what_comes_before_the_first_byte_is_known(error: Exception) -> None:
    async with httpx2.AsyncClient(transport=CountingTransport(Scripted(a=error)), trust_env=False) as http:
        with pytest.raises(NotSent):
            await http.get("http://a/")


@pytest.mark.parametrize("error", AFTER, ids=lambda error: type(error).__name__)
async def test_r75_what_may_come_after_the_first_byte_is_not(error: Exception) -> None:
    transport = CountingTransport(Scripted(a=error, b=httpx2.ConnectError("x")))
    async with httpx2.AsyncClient(transport=transport, trust_env=False) as http:
        with pytest.raises(type(error)):
            await http.get("http://a/")
        assert transport.begun == 1
        with pytest.raises(httpx2.ConnectError):
            await http.get("http://b/")


async def test_r75_a_connection_that_fails_while_another_request_is_out_proves_nothing() -> None:
    """Two requests at once: the one without a connection was begun first, and ends last."""
    refused = asyncio.Event()
    inner = Scripted(slow=refused, other=httpx2.ReadError("reset"))
    async with httpx2.AsyncClient(transport=CountingTransport(inner), trust_env=False) as http:
        first = asyncio.create_task(http.post("http://slow/"))
        await inner.waiting.wait()
        with pytest.raises(httpx2.ReadError):
            await http.post("http://other/")
        refused.set()
        with pytest.raises(httpx2.ConnectError):
            await first


async def test_a_cancelled_request_counts_as_begun() -> None:
    forever = asyncio.Event()
    transport = CountingTransport(Scripted(slow=forever, b=httpx2.ConnectError("x")))
    async with httpx2.AsyncClient(transport=transport, trust_env=False) as http:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(http.post("http://slow/"), 0.01)
        with pytest.raises(httpx2.ConnectError):
            await http.post("http://b/")


# One request is one request


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_r75_a_redirect_is_not_followed(http: httpx2.AsyncClient, status: int) -> None:
    """It would be a second request that nobody counted."""
    async with peer(answer(OK)) as elsewhere:
        head = f"HTTP/1.1 {status} Moved\r\nlocation: {elsewhere.url}\r\ncontent-length: 0\r\n\r\n"
        async with peer(answer(head.encode())) as server:
            response = await http.post(server.url, json={"order": "1001"})
            assert (response.status_code, len(server.heads)) == (status, 1)
        assert elsewhere.connections == 0


async def test_r75_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers for itself, and retries as it likes."""
    async with peer(answer(OK)) as proxy, peer(answer(OK)) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        async with tool_client(5.0) as http:
            await http.get(server.url)
        assert (proxy.connections, server.connections) == (0, 1)


async def test_an_error_of_the_service_is_an_answer_like_any_other(http: httpx2.AsyncClient) -> None:
    async with peer(answer(b"HTTP/1.1 503 Later\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n")) as server:
        assert (await http.post(server.url)).status_code == 503
        assert len(server.heads) == 1


async def test_each_step_of_a_request_is_bounded_by_the_attempts_time(http: httpx2.AsyncClient) -> None:
    assert http.timeout == httpx2.Timeout(5.0)


async def test_nothing_is_kept_from_attempt_to_attempt(nobody: str) -> None:
    """A client serves one attempt: what an earlier one sent doesn't matter."""
    async with peer(answer(OK)) as server, tool_client(5.0) as http:
        await http.post(server.url)
    async with tool_client(5.0) as http:
        with pytest.raises(NotSent):
            await http.post(nobody)


async def test_r104_a_header_that_can_t_be_sent_is_told_to_nobody(http: httpx2.AsyncClient) -> None:
    """The HTTP library quotes it, and what a tool raises is told to the model, and kept: a key would be, too."""
    async with peer(answer(OK)) as served:
        with pytest.raises(httpx2.LocalProtocolError) as raised:
            await http.get(served.url, headers={"Authorization": "Bearer never-to-be-seen\n"})
    assert served.heads == []
    assert "never-to-be-seen" not in failure_of(raised.value).text
    told: BaseException | None = raised.value
    while told is not None:  # as a failure's causes are told
        assert "never-to-be-seen" not in str(told)
        told = told.__cause__ or (None if told.__suppress_context__ else told.__context__)
