"""Both queues carry every request and every answer, in order, within bounds, between real processes."""

import dataclasses
import multiprocessing
import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any

import pytest
import torch

from bench import supervisor
from bench.child import Link
from bench.errors import BenchError
from bench.queues.base import BEGIN, END, Buffer, Client, Server
from bench.queues.digest import output_plan
from bench.queues.memory import ANSWERED, OUTPUT_BYTES, Board, BoardView, Event, Memory
from bench.queues.shared_memory import SharedMemoryQueue
from bench.queues.torch_queue import TorchQueue
from bench.results.checks import decode
from bench.stamps import COMPLETED, WIDTH

TIMEOUT_S = 30.0
SHAPE = (2, 3, 4)  # of a payload; the answer is twice its flattened rows
PAYLOADS = 3
IN_FLIGHT = 64  # of the torch queue
BOTH = pytest.mark.parametrize("name", ["shared_memory", "torch"])

Ends = tuple[Client, Server]


def pool_over(view: BoardView) -> list[torch.Tensor]:
    """The payloads as float32 tensors."""
    return [torch.frombuffer(part, dtype=torch.float32).view(SHAPE) for part in view.payloads]


def answer(payload: torch.Tensor) -> torch.Tensor:
    """What the server of these tests gives back."""
    return payload.flatten(1) * 2


def make_queue(name: str, board: Board, timeout_s: float = TIMEOUT_S) -> SharedMemoryQueue | TorchQueue:
    """A queue as the supervisor makes it."""
    if name == "torch":
        return TorchQueue.create(multiprocessing.get_context("spawn"), IN_FLIGHT, timeout_s)
    return SharedMemoryQueue.create(board)


class Bench:
    """A board, its payloads filled with distinct values, and both ends of a queue in this process."""

    def __init__(self, name: str, rows: int, *, slots: int = 3, timeout_s: float = TIMEOUT_S) -> None:
        self.board = Board(rows, PAYLOADS, 4 * torch.Size(SHAPE).numel())
        self.view = self.board.open(present=False)
        self.pool = pool_over(self.view)
        for k, tensor in enumerate(self.pool):
            tensor.copy_(torch.arange(tensor.numel()).view(SHAPE) + 100.0 * k)
        self.queue = make_queue(name, self.board, timeout_s)
        self.client: Client = self.queue.client(self.view, self.pool)
        self.server: Server = self.queue.server(self.view, self.pool, timeout_s)
        self.slots = slots
        self.server.allocate(answer(self.pool[0]), slots)

    def send(self, *indexes: int) -> None:
        """From the frontend."""
        for index in indexes:
            if index >= 0:
                self.client.prepare(index)
            self.client.send(index)

    def serve_one(self) -> list[int]:
        """Answer what has arrived; the indexes of it."""
        requests = self.server.receive(TIMEOUT_S)
        for index, payload in requests:
            respond(self.server, index, payload)
        return [index for index, _ in requests]

    def check_digests(self, count: int) -> None:
        """The kept elements of `count` answers are those of their own payloads."""
        check_digests(self.view, self.pool, count)

    def close(self) -> None:
        """Both ends, and the board."""
        self.client.close()
        self.server.close()
        self.queue.close()
        self.board.memory.close()


def respond(server: Server, index: int, payload: torch.Tensor | None) -> None:
    """One answer, computed as it should be."""
    buffer: Buffer | None = None
    if payload is not None:
        buffer = server.reserve()
        buffer.tensor.copy_(answer(payload))
    server.respond(index, buffer)


def check_digests(view: BoardView, pool: list[torch.Tensor], count: int) -> None:
    """The kept elements of each answer are the elements that the plan names, of its own payload's answer."""
    plan = output_plan(view.control)
    positions = [position for piece in plan.pieces for position in range(*piece)]
    assert len(positions) == 4  # two rows, two columns
    kept = decode(bytes(view.digests), plan, "float32", count)
    for index in range(count):
        assert kept[index].tolist() == answer(pool[index % len(pool)]).flatten()[positions].tolist()


@contextmanager
def benched(name: str, rows: int = 8, **options: Any) -> Iterator[Bench]:
    """A `Bench`, closed on every way out."""
    made = Bench(name, rows, **options)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def threads(*bodies: Callable[[], object]) -> Iterator[None]:
    """Run `bodies` beside the caller; what they raise is raised here, and so is one that does not end."""
    errors: list[BaseException] = []

    def guard(body: Callable[[], object]) -> None:
        try:
            body()
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            errors.append(error)

    started = [threading.Thread(target=guard, args=(body,), daemon=True) for body in bodies]
    for thread in started:
        thread.start()
    yield
    for thread in started:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    for error in errors:
        raise error


def receive_all(client: Client, count: int) -> list[int]:
    """Wait for `count` answers."""
    indexes: list[int] = []
    while len(indexes) < count:
        arrived = client.receive(TIMEOUT_S)
        assert arrived, f"{len(indexes)} of {count} answers arrived"
        indexes.extend(arrived)
    return indexes


def serve_all(server: Server) -> None:
    """Answer until END."""
    while True:
        requests = server.receive(TIMEOUT_S)
        assert requests, "no request arrived"
        for index, payload in requests:
            if index == END:
                return
            respond(server, index, payload)


class Slow:
    """Shared memory that lets other threads come in between before it is written."""

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def __getitem__(self, key: slice) -> memoryview:
        return self._words[key]

    def __setitem__(self, key: int, value: int) -> None:
        sleep(1e-4)
        self._words[key] = value


# Both ends in one process.


@BOTH
def test_a_request_arrives_with_its_payload(name: str) -> None:
    """Request k brings payload k modulo the number of payloads; control messages bring none."""
    with benched(name) as bench:
        arrived: list[tuple[int, torch.Tensor | None]] = []
        bench.send(0, 1)
        while len(arrived) < 2:
            arrived.extend(bench.server.receive(TIMEOUT_S))
        bench.send(BEGIN, 5, END)
        while len(arrived) < 5:
            arrived.extend(bench.server.receive(TIMEOUT_S))
        assert [index for index, _ in arrived] == [0, 1, BEGIN, 5, END]
        for index, payload in arrived:
            assert (payload is None) == (index < 0)
            if payload is not None:
                assert torch.equal(payload, bench.pool[index % PAYLOADS])


@BOTH
def test_waiting_for_nothing_ends(name: str) -> None:
    """receive() at either end comes back empty after its time."""
    with benched(name) as bench:
        assert list(bench.client.receive(0.01)) == []
        assert list(bench.server.receive(0.01)) == []


@BOTH
def test_answers_are_counted_stamped_and_kept(name: str) -> None:
    """An answer's row gets its completion stamp and its digest, its neighbours' rows nothing."""
    with benched(name) as bench:
        bench.send(2)
        bench.serve_one()
        assert receive_all(bench.client, 1) == [2]
        completed = [bench.view.stamps[row * WIDTH + COMPLETED] > 0 for row in range(8)]
        assert completed == [row == 2 for row in range(8)]
        assert bench.view.control[ANSWERED] == 1
        digests = torch.frombuffer(bench.view.digests, dtype=torch.float32).view(8, -1)
        assert [bool(row.any()) for row in digests] == [row == 2 for row in range(8)]
        assert digests[2, 0] == answer(bench.pool[2])[0, 0]


@BOTH
def test_control_messages_keep_their_order(name: str) -> None:
    """BEGIN, sent after an answered request and before END, arrives in between, and so does its answer."""
    with benched(name) as bench:
        seen: list[int] = []
        bench.send(0)
        seen += bench.serve_one()
        assert receive_all(bench.client, 1) == [0]
        bench.send(BEGIN)
        seen += bench.serve_one()
        assert receive_all(bench.client, 1) == [BEGIN]
        bench.send(1, END)
        while len(seen) < 4:
            seen += [index for index, _ in bench.server.receive(TIMEOUT_S)]
        assert seen == [0, BEGIN, 1, END]


@BOTH
def test_several_threads_may_answer(name: str) -> None:
    """Four threads answer 400 requests out of order; none is lost, doubled or mixed up, and nobody is stuck."""
    count, workers = 400, 4
    with benched(name, rows=count, slots=2) as bench:
        work = [iter(range(k, count, workers)) for k in range(workers)]

        def answer_some(indexes: Iterator[int]) -> None:
            for index in indexes:
                respond(bench.server, index, bench.pool[index % PAYLOADS])

        slow: Any = Slow(bench.view.response_indexes)
        bench.view.response_indexes = slow
        if name == "torch":  # its answers make room for requests, so there must be requests
            assert isinstance(bench.queue, TorchQueue)
            bench.client = dataclasses.replace(bench.queue, in_flight=count).client(bench.view, bench.pool)
            for index in range(count):
                bench.client.prepare(index)
        with threads(*[lambda part=part: answer_some(part) for part in work]):
            assert sorted(receive_all(bench.client, count)) == list(range(count))
        bench.check_digests(count)


# Shared memory: slots.


def test_reserve_says_when_the_client_frees_nothing() -> None:
    """With every slot taken and nobody reading, reserve() raises in its time, and says what did not happen."""
    with benched("shared_memory", timeout_s=0.1, slots=2) as bench:
        bench.server.reserve()
        respond(bench.server, 0, bench.pool[0])
        with pytest.raises(BenchError, match=r"the frontend freed no output slot for 0\.1 s"):
            bench.server.reserve()


def test_a_thread_that_waits_for_a_slot_does_not_keep_others_from_answering() -> None:
    """The one slot's holder can answer while another thread waits for that slot."""
    with benched("shared_memory", slots=1) as bench:
        held = bench.server.reserve()
        waiting = threading.Event()

        def wait_for_slot() -> None:
            waiting.set()
            assert bench.server.reserve().slot == held.slot

        with threads(wait_for_slot):
            waiting.wait(TIMEOUT_S)
            while not bench.server._reserving.locked():  # type: ignore[attr-defined]  # until it really waits
                sleep(0.001)
            bench.server.respond(0, held)
            assert receive_all(bench.client, 1) == [0]


def test_a_slot_is_not_reused_before_its_answer_was_read() -> None:
    """Slots that the client has not received stay as they are, however many are asked for."""
    with benched("shared_memory", slots=2, timeout_s=0.05) as bench:
        respond(bench.server, 0, bench.pool[0])
        respond(bench.server, 1, bench.pool[1])
        with pytest.raises(BenchError, match="freed no output slot"):
            bench.server.reserve()
        assert receive_all(bench.client, 2) == [0, 1]
        assert {bench.server.reserve().slot, bench.server.reserve().slot} == {0, 1}
        with pytest.raises(BenchError, match="freed no output slot"):
            bench.server.reserve()
        bench.check_digests(2)


def test_an_answered_control_message_frees_no_slot() -> None:
    """A thread that waits for a slot goes on waiting when the client has read only an answer to BEGIN."""
    with benched("shared_memory", slots=1, timeout_s=0.05) as bench:
        bench.server.reserve()
        bench.server.respond(BEGIN, None)
        assert receive_all(bench.client, 1) == [BEGIN]
        with pytest.raises(BenchError, match="freed no output slot"):
            bench.server.reserve()


def test_memory_does_not_grow_with_requests() -> None:
    """After 2000 more answers the slots are as many, and this process holds no more than before."""
    with benched("shared_memory", rows=2200) as bench:

        def go_round(first: int, last: int) -> None:
            for index in range(first, last):
                bench.send(index)
                bench.serve_one()
                bench.client.receive(TIMEOUT_S)

        go_round(0, 200)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            go_round(200, 2200)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert grown < 32 * 1024
        outputs = bench.queue.outputs  # type: ignore[union-attr]  # the shared-memory queue
        assert os.fstat(outputs.fd).st_size == 3 * bench.view.control[OUTPUT_BYTES] == 3 * 2 * 12 * 4


# torch: what is in flight.


def test_torch_queue_bounds_what_is_in_flight() -> None:
    """Without answers prepare() raises after its time, and goes on once an answer has come."""
    with benched("torch", timeout_s=0.1) as bench:
        assert isinstance(bench.queue, TorchQueue)
        bench.client = dataclasses.replace(bench.queue, in_flight=2).client(bench.view, bench.pool)
        bench.send(0, 1)
        with pytest.raises(BenchError, match=r"no answer for 0\.1 s while 2 requests wait"):
            bench.client.prepare(2)
        bench.serve_one()
        receive_all(bench.client, 1)
        bench.send(2)


def test_torch_queue_leaks_no_descriptors() -> None:
    """After 200 more requests this process has as many open descriptors as before."""
    with benched("torch", rows=220) as bench:

        def go_round(first: int, last: int) -> None:
            for index in range(first, last):
                bench.send(index)
                bench.serve_one()
                receive_all(bench.client, 1)

        go_round(0, 20)
        before = len(os.listdir("/proc/self/fd"))
        go_round(20, 220)
        assert len(os.listdir("/proc/self/fd")) <= before + 2  # one request's may still be on its way out


# Two processes.


def echo(setup: Any, link: Link) -> None:
    """Body of a backend that answers until END and tells which slots it used."""
    queue, board, slots = setup
    view = board.open()
    pool = pool_over(view)
    server = queue.server(view, pool, TIMEOUT_S)
    server.allocate(answer(pool[0]), slots)
    used, reserve = set(), server.reserve

    def noted() -> Buffer:
        buffer: Buffer = reserve()
        used.add(buffer.slot)
        return buffer

    server.reserve = noted
    serve_all(server)
    link.send("done", used)
    server.close()


@BOTH
def test_answers_come_back_from_another_process(name: str) -> None:
    """500 requests of 3 payloads through 3 slots: all answered, in order, stamped, and each with its own answer."""
    count = 500
    board = Board(count, PAYLOADS, 4 * torch.Size(SHAPE).numel())
    view = board.open()
    pool = pool_over(view)
    for k, tensor in enumerate(pool):
        tensor.copy_(torch.arange(tensor.numel()).view(SHAPE) + 100.0 * k)
    queue = make_queue(name, board)
    with supervisor.started("backend", "test_queues:echo", (queue, board, 3), timeout_s=TIMEOUT_S) as child:
        client: Client = queue.client(view, pool)

        def send() -> None:
            for index in range(count):
                client.prepare(index)
                client.send(index)

        with threads(send):
            assert receive_all(client, count) == list(range(count))
        client.send(BEGIN)
        assert receive_all(client, 1) == [BEGIN]
        client.send(END)
        assert child.connection.poll(TIMEOUT_S)
        kind, used = child.connection.recv()
        assert kind == "done", used
        child.done = True
    completed = [view.stamps[index * WIDTH + COMPLETED] for index in range(count)]
    assert completed[0] > 0
    assert completed == sorted(completed)
    assert used == ({0, 1, 2} if name == "shared_memory" else {-1})
    assert view.control[ANSWERED] == count + 1
    check_digests(view, pool, count)
    client.close()
    queue.close()
    board.memory.close()


def touch(setup: Any, link: Link) -> None:
    """Body of a child that leaves its marks in what it was handed."""
    memory, event, fresh = setup
    memory.map(present=False)[0:5] = b"child"
    fresh.resize(4096)
    fresh.map(present=True)[4095] = 7
    os.eventfd_write(event.fd, 3)
    link.send("done", (memory.fd, event.fd))


def test_memory_and_events_reach_a_child() -> None:
    """What a child writes into memory is seen here, a size that it sets too, and its event ends the wait here."""
    memory, event, fresh = Memory(8192), Event(), Memory()
    poll = event.poller()
    assert poll(0) == []
    supervisor.call("child", "test_queues:touch", (memory, event, fresh), timeout_s=TIMEOUT_S)
    assert poll(0)
    assert os.eventfd_read(event.fd) == 3
    assert memory.map(present=False)[0:5] == b"child"
    assert fresh.map(present=False)[4095] == 7
    for part in (memory, event, fresh):
        part.close()


def test_a_descriptor_is_closed_once() -> None:
    """Closing twice leaves a descriptor alone that has meanwhile got the same number."""
    memory = Memory(1)
    number = memory.fd
    memory.close()
    other = Memory(1)
    assert other.fd == number
    memory.close()
    del memory
    os.fstat(other.fd)
    other.close()


def test_parts_of_a_board_do_not_overlap() -> None:
    """Whatever is written into one part of the board leaves all others as they are."""
    board = Board(5, 2, 100)
    view = board.open(present=False)
    parts = [view.control, view.requests, view.response_indexes, view.response_slots, view.stamps, view.digests]
    parts = [part.cast("B") if part.format != "B" else part for part in (*parts, *view.payloads)]
    for k, part in enumerate(parts):
        part[:] = bytes([k + 1]) * len(part)
    assert [set(part) for part in parts] == [{k + 1} for k in range(len(parts))]
    assert [len(part) for part in view.payloads] == [100, 100]
    board.memory.close()
