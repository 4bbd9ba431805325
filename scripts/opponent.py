"""The structure of PyTorch's `benchmarks/inference`, written anew on the CPU, as the opponent of `overhead.py`.

Two fork-server processes, two torch queues, a manager's dictionary, a pool each for copies in,
computing and copies out, and an end guessed from five seconds of silence. Nothing is slowed down on
purpose: random payloads are drawn before the clock starts and cloned for each request, and CUDA's calls are simply
left out.

    python scripts/opponent.py MODEL BATCH_SIZE NUM_ITERS NUM_WORKERS   prints the results as JSON
"""

import json
import queue
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.multiprocessing as mp

SILENCE_S = 5


class Noop(torch.nn.Module):
    """Answers at once."""

    def forward(self, x):
        return x.as_strided((x.size(0), 1), (x.stride(0), 1))


def make_model(name):
    if name == "noop":
        return Noop().eval()
    import torchvision

    return torchvision.models.get_model(name).eval()


def backend(results, requests, responses, name, num_workers):
    """Copy, predict and respond in pools of their own, as the original does with its streams."""
    model = None
    copies_in, workers, copies_out = ThreadPoolExecutor(1), ThreadPoolExecutor(num_workers), ThreadPoolExecutor(1)

    def copy_data(buffer, data, copied):
        buffer.append(data)
        copied.release()

    def predict(buffer, copied, output, computed):
        copied.acquire()
        with torch.no_grad():
            output.append(model(buffer[0]))
        computed.release()

    def respond(computed, output, sent_at):
        computed.acquire()
        responses.put((output[0].cpu(), sent_at))

    while True:
        try:
            data, sent_at = requests.get(timeout=SILENCE_S)
        except queue.Empty:
            break
        if model is None:
            torch.set_num_threads(max(1, torch.get_num_threads() // num_workers))
            model = make_model(name)
        buffer, output = [], []
        copied, computed = threading.Semaphore(0), threading.Semaphore(0)
        copies_in.submit(copy_data, buffer, data, copied)
        workers.submit(predict, buffer, copied, output, computed)
        copies_out.submit(respond, computed, output, sent_at)
    for pool in (copies_in, workers, copies_out):
        pool.shutdown()
    results["backend_done"] = time.perf_counter()


def frontend(results, requests, responses, batch_size, num_iters):
    """One thread sends, one receives."""
    shape = (batch_size, 3, 250, 250)
    payloads = [torch.randn(shape) for _ in range(4)]
    warm = threading.Event()
    latencies = []
    times = {}

    def receive():
        for k in range(num_iters + 1):
            _, sent_at = responses.get()
            latencies.append(time.perf_counter() - sent_at)
            if k == 0:
                warm.set()
        times["last_completed"] = time.perf_counter()

    def send():
        requests.put((payloads[0].clone(), time.perf_counter()))
        warm.wait()
        times["first_sent"] = time.perf_counter()
        for k in range(num_iters):
            requests.put((payloads[k % 4].clone(), time.perf_counter()))

    threads = [threading.Thread(target=receive), threading.Thread(target=send)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results["warmup_latency"] = latencies[0]
    results["window"] = times["last_completed"] - times["first_sent"]
    results["throughput"] = num_iters * batch_size / results["window"]


def main():
    name, batch_size, num_iters, num_workers = sys.argv[1], *map(int, sys.argv[2:5])
    mp.set_start_method("forkserver")
    requests, responses = mp.Queue(), mp.Queue()
    results = mp.Manager().dict()
    processes = [
        mp.Process(target=frontend, args=(results, requests, responses, batch_size, num_iters)),
        mp.Process(target=backend, args=(results, requests, responses, name, num_workers)),
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    print(json.dumps(results.copy()))


if __name__ == "__main__":
    main()
