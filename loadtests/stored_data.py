"""Fills a store with retained messages and persistent sessions with queues, exports it, and lets clients check it.

Device N has two subscriptions: its own filter, on which one message waits, and the filter of its group of 100 devices, on which
GROUP_MESSAGES wait. One device of 100 has already read its queue. Each tenth device is a member of a shared subscription, for whose
members SHARED_MESSAGES wait.
"""

import asyncio
import contextlib
import hashlib
import pathlib
import selectors
import socket
import subprocess

from server import field, packet

GROUP, GROUP_MESSAGES = 100, 5
SHARED, SHARED_MESSAGES = "$share/workers/jobs/#", 1_000
# Fewer than there are packet ids.
UNANSWERED_MAX = 20_000
# Connections at once, and source addresses in turn, because each has fewer than 30,000 free ports.
AT_ONCE, ADDRESSES = 200, 16
QUIET_S = 120
LIST_MAX = 100_000_000


def packets(buffer: bytearray):
    """Takes the whole packets from the front of the buffer: their first byte and their body."""
    at = 0
    while len(buffer) - at >= 2:
        size = shift = 0
        head = at + 1
        while head < len(buffer) and buffer[head] & 0x80:
            size |= (buffer[head] & 0x7F) << shift
            shift, head = shift + 7, head + 1
        if head >= len(buffer):
            break
        size |= buffer[head] << shift
        if len(buffer) < head + 1 + size:
            break
        yield buffer[at], bytes(buffer[head + 1 : head + 1 + size])
        at = head + 1 + size
    del buffer[:at]


def connect(client: str, clean: bool) -> bytes:
    return packet(0x10, field(b"MQTT") + bytes([4, 2 if clean else 0, 0, 0]) + field(client.encode()))


def subscribe(*filters: str) -> bytes:
    return packet(0x82, b"\0\1" + b"".join(field(it.encode()) + b"\1" for it in filters))


def published(body: bytes) -> tuple[str, bytes, bytes]:
    end = 2 + int.from_bytes(body[:2], "big")
    return body[2:end].decode(), body[end : end + 2], body[end + 2 :]


def state(number: int) -> tuple[str, bytes]:
    """A retained message: its payload follows from its number."""
    topic = f"fleet/{number // 1000:04}/{number % 1000:03}/state"
    return topic, hashlib.sha256(topic.encode()).hexdigest().encode()


def queued(sessions: int):
    """The messages that wait: topic and payload, in the order of their publishing."""
    for number in range(sessions):
        yield f"device/{number}/cmd", f"to {number}".encode()
    for message in range(GROUP_MESSAGES):
        for group in range((sessions + GROUP - 1) // GROUP):
            yield f"group/{group}/all", f"{message} to group {group}".encode()
    for message in range(SHARED_MESSAGES):
        yield f"jobs/{message}", f"job {message}".encode()


def own_queue(number: int) -> list[tuple[str, bytes]]:
    group = number // GROUP
    return [(f"device/{number}/cmd", f"to {number}".encode())] + [
        (f"group/{group}/all", f"{message} to group {group}".encode()) for message in range(GROUP_MESSAGES)
    ]


def has_read(number: int) -> bool:
    return number % 100 == 7


def is_worker(number: int) -> bool:
    return number % 10 == 0


def publish(port: int, messages, retain: bool) -> int:
    """Publishes with QoS 1, and returns how many were acknowledged; all of them, or this fails."""
    first = 0x32 | retain
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.sendall(connect(f"filler-{retain:d}", True))
        assert stream.recv(4) == b"\x20\2\0\0", "the server refuses the publisher"
        stream.setblocking(False)
        selector = selectors.DefaultSelector()
        selector.register(stream, selectors.EVENT_READ | selectors.EVENT_WRITE)
        source, sent, answered, out, answers, ended = iter(messages), 0, 0, b"", bytearray(), False
        while not ended or answered < sent:
            if not out and not ended and sent - answered < UNANSWERED_MAX:
                parts = []
                for topic, payload in source:
                    identifier = sent % 65_535 + 1
                    parts.append(packet(first, field(topic.encode()) + identifier.to_bytes(2, "big") + payload))
                    sent += 1
                    if len(parts) == 1_000:
                        break
                else:
                    ended = True
                out = b"".join(parts)
            selector.modify(stream, selectors.EVENT_READ | (selectors.EVENT_WRITE if out else 0))
            ready = selector.select(QUIET_S)
            assert ready, f"no PUBACK for {QUIET_S} s, after {answered} of {sent}"
            for _, events in ready:
                if events & selectors.EVENT_WRITE:
                    out = out[stream.send(out) :]
                if events & selectors.EVENT_READ:
                    data = stream.recv(1 << 20)
                    assert data, f"the server closed the publisher, after {answered} of {sent}"
                    answers += data
                    answered += sum(kind == 0x40 for kind, _ in packets(answers))
        return answered


async def session(port: int, number: int, more: bytes, wanted: int, address: int) -> list[tuple[str, bytes]]:
    """Connects as device `number`, sends `more`, disconnects after `wanted` messages, and returns those that came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.0.{2 + address % ADDRESSES}", 0))
    try:
        writer.write(connect(f"device-{number:06}", False) + more)
        got, buffer, awaited, leaves = [], bytearray(), {0x20, 0x90} if more else {0x20}, False
        # Until the server has closed: only then are the acknowledgements read, and messages beyond the wanted ones seen.
        while data := await asyncio.wait_for(reader.read(1 << 16), QUIET_S):
            buffer += data
            for kind, body in packets(buffer):
                if kind == 0x20:
                    assert body == bytes([not more, 0]), f"device {number}: CONNACK {body.hex()}"
                elif kind == 0x90:
                    assert set(body[2:]) == {1}, f"device {number}: SUBACK {body.hex()}"
                elif kind >> 4 == 3:
                    topic, identifier, payload = published(body)
                    got.append((topic, payload))
                    writer.write(packet(0x40, identifier))
                awaited.discard(kind)
            if not awaited and len(got) >= wanted and not leaves:
                leaves = True
                writer.write(packet(0xE0, b""))
        assert leaves, f"device {number}: the server closed the connection after {len(got)} of {wanted} messages"
        return got
    finally:
        writer.close()


async def many(jobs):
    """Runs coroutines, AT_ONCE at a time, and returns their results in no order."""
    jobs, results = iter(jobs), []

    async def one_after_another():
        for job in jobs:
            results.append(await job)

    await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))
    return results


def fill(port: int, retained: int, sessions: int):
    def filters(number):
        return [f"device/{number}/cmd", f"group/{number // GROUP}/#", *([SHARED] if is_worker(number) else [])]

    asyncio.run(many(session(port, number, subscribe(*filters(number)), 0, number) for number in range(sessions)))
    assert publish(port, queued(sessions), False) == sessions + GROUP_MESSAGES * ((sessions + GROUP - 1) // GROUP) + SHARED_MESSAGES
    # Workers get jobs beside their own queue, so no worker reads here.
    readers = [number for number in range(sessions) if has_read(number)]
    asyncio.run(many(session(port, number, b"", 1 + GROUP_MESSAGES, number) for number in readers))
    assert publish(port, map(state, range(retained)), True) == retained


def export(program: str, data: str) -> dict[str, tuple[int, str]]:
    """Lines and SHA-256 of what the program's own commands show of a data folder that nobody has open."""
    lists = ["sessions list", "streams list", "retained list"]
    commands = [[*it.split(), "--limit", str(LIST_MAX)] for it in lists]
    commands += [["streams", "show", it, "--messages", "10000"] for it in (SHARED, "group/0/#", "device/1/cmd")]
    commands += [["sessions", "show", f"device-{number:06}"] for number in (0, 7, 11)]
    found = {}
    for command in commands:
        digest, lines = hashlib.sha256(), 0
        with subprocess.Popen([program, *command, "--json", "--data-dir", data], stdout=subprocess.PIPE) as process:
            for line in process.stdout:
                digest.update(line)
                lines += 1
        assert process.returncode == 0, f"millrace {' '.join(command)} ended with {process.returncode}"
        found[" ".join(command[:3] if command[1] == "show" else command[:2])] = (lines, digest.hexdigest())
    return found


def check_export(found: dict[str, tuple[int, str]], retained: int, sessions: int):
    """An export of nothing would equal another one of nothing."""
    assert found["retained list"][0] == retained, f"{found['retained list'][0]} retained messages of {retained} are in the export"
    assert found["sessions list"][0] == sessions, f"{found['sessions list'][0]} sessions of {sessions} are in the export"
    filters = sessions + (sessions + GROUP - 1) // GROUP + 1
    assert found["streams list"][0] == filters, f"{found['streams list'][0]} streams of {filters} are in the export"


def read_retained(port: int) -> int:
    """The retained messages that a new subscription gets, each with the payload of its topic."""
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.settimeout(10)
        stream.sendall(connect("reader", True) + packet(0x82, b"\0\1" + field(b"fleet/#") + b"\1"))
        buffer, got = bytearray(), 0
        try:
            while data := stream.recv(1 << 20):
                buffer += data
                answers = bytearray()
                for kind, body in packets(buffer):
                    if kind >> 4 != 3:
                        continue
                    topic, identifier, payload = published(body)
                    wanted = hashlib.sha256(topic.encode()).hexdigest().encode()
                    assert payload == wanted, f"the retained message of {topic} has another payload"
                    answers += packet(0x40, identifier)
                    got += 1
                stream.sendall(answers)
        except TimeoutError:
            pass
        return got


def read_queues(port: int, sessions: int, sample: int) -> int:
    """Devices come back, and each must get exactly its queue, in order. Returns how many did."""
    step = max(1, sessions // sample)
    # From 7, so that some have read their queue. A worker would also get jobs.
    numbers = [number for number in range(7, sessions, step) if not is_worker(number)]

    async def device(number):
        wanted = [] if has_read(number) else own_queue(number)
        got = await session(port, number, b"", len(wanted), number)
        assert sorted(got) == sorted(wanted), f"device {number} got {got[:9]}, wanted {wanted}"
        groups = [payload for topic, payload in got if topic.startswith("group/")]
        assert groups == sorted(groups), f"device {number} got the messages of its group in another order"

    asyncio.run(many(device(number) for number in numbers))
    return len(numbers)


def size_mb(folder: str) -> float:
    """Size of a folder on the disk. Its files may come and go meanwhile."""
    blocks = 0
    for path in pathlib.Path(folder).rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            blocks += path.stat().st_blocks
    return blocks * 512 / 1e6
