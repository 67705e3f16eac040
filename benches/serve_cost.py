#!/usr/bin/env python3
"""What HTTP adds to the engine: the round trip of `/embedding`, less the time that the engine took in the same request.

  python benches/serve_cost.py [--models target/peers/models] [--heads ../shared/data/zen-router] [--runs 300] [--threads 2]

Builds the release command first, and starts one server for each model. Every request says how long the engine took
(`Server-Timing`); the client is Python's http.client on one connection, and its own cost is in the figures: that of a request
that needs no engine (`/health`) stands beside them. Prompts are new each time but in the rows that say otherwise.
"""

import argparse
import http.client
import json
import statistics
import subprocess
import time

import record

SHORT = "write a python function to reverse a linked list"
LONG = " ".join(["The committee met again on Tuesday and argued about the bridge, its cost and its colour."] * 24)


class Server:
    """A server on a free port; ended when it is left."""

    def __init__(self, command, words):
        self.words = [str(command), "serve", "--port", "0", "--json", "--no-stats", *words]

    def __enter__(self):
        self.child = subprocess.Popen(self.words, stdout=subprocess.PIPE, text=True)
        self.said = json.loads(self.child.stdout.readline())
        return self

    def __exit__(self, *_):
        self.child.terminate()
        self.child.wait()

    def connect(self):
        connection = http.client.HTTPConnection(self.said["host"], self.said["port"])
        connection.connect()
        return connection


def ask(connection, method, path, body=None):
    """One round trip: milliseconds until the last byte of the answer, the engine's milliseconds, the answer."""
    body = body and json.dumps(body).encode()
    start = time.perf_counter()
    connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
    answer = connection.getresponse()
    text = answer.read()
    took = (time.perf_counter() - start) * 1e3
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status} {text[:300]}")
    timing = answer.getheader("Server-Timing", "engine;dur=0")
    return took, float(timing.split("dur=")[1]), text


def measure(server, runs, long_every):
    """Rows of (what, [(round trip, engine)], bytes of an answer), the kinds in turn; a long prompt in every so many turns."""
    connection = server.connect()
    kinds = {
        "no engine (/health)": lambda i: ask(connection, "GET", "/health"),
        "repeated prompt": lambda i: ask(connection, "POST", "/embedding", {"content": SHORT}),
        "short prompt": lambda i: ask(connection, "POST", "/embedding", {"content": f"{i}: {SHORT}"}),
        "long prompt": lambda i: ask(connection, "POST", "/embedding", {"content": f"{i}: {LONG}"}),
    }
    rows = {kind: [] for kind in kinds}
    size = {}
    for i in range(runs + 3):
        for kind, call in kinds.items():
            if kind == "long prompt" and i % long_every:
                continue
            took, engine, text = call(i)
            size[kind] = len(text)
            if i >= 3:  # The first ones start threads and fill caches.
                rows[kind].append((took, engine))
    # A connection for each request, as a script without a session makes it.
    rows["short prompt, new connection"] = []
    for i in range(runs):
        start = time.perf_counter()
        fresh = server.connect()
        connecting = (time.perf_counter() - start) * 1e3
        took, engine, text = ask(fresh, "POST", "/embedding", {"content": f"{i}! {SHORT}"})
        rows["short prompt, new connection"].append((took + connecting, engine))
        size["short prompt, new connection"] = len(text)
        fresh.close()
    return rows, size


def main():
    ap = argparse.ArgumentParser()
    record.arguments(ap, runs=300)
    a = ap.parse_args()
    command = record.built(a.command)
    sides = {"default pack": []}
    smol = a.models / "smollm2-135m-q4_1.gguf"
    if smol.exists():
        sides["SmolLM2 135M Q4_1"] = ["--model", str(smol)]
    random = a.models / "qwen3-0.6b-rand-q4_k_m.gguf"
    if random.exists() and a.heads.exists():
        sides["Qwen3 0.6B Q4_K_M, random weights"] = ["--model", str(random), "--heads", str(a.heads)]
    raw = {}
    table = ["| model, request | answers | answer, bytes | round trip, ms | engine, ms | added, ms | added, p95 |", "|---|--:|--:|--:|--:|--:|--:|"]
    for name, words in sides.items():
        small = name == "default pack"
        runs, long_every = (a.runs, 5) if small else (max(a.runs // 5, 20), 2)
        with Server(command, [*words, "--threads", str(a.threads)]) as server:
            rows, size = measure(server, runs, long_every)
        for kind, times in rows.items():
            added = sorted(took - engine for took, engine in times)
            p95 = added[min(len(added) - 1, int(len(added) * 0.95))]
            took, engine = (statistics.median(column) for column in zip(*times))
            table.append(
                f"| {name}, {kind} | {len(times)} | {size[kind]} | {took:.3f} | {engine:.3f} "
                f"| {statistics.median(added):.3f} | {p95:.3f} |"
            )
        raw[name] = rows
    text = "\n".join(table)
    text += f"\n\nMedians; {a.threads} threads, one client, loopback. `added` is the round trip less the engine's time of the same request: "
    text += "sockets, HTTP, JSON of both sides, the change of threads, and Python's http.client."
    text += " The row without engine shows how busy the machine was: what is waited for there is waited for in every row."
    record.keep("serve-cost", {"threads": a.threads, "runs": raw}, text)


if __name__ == "__main__":
    main()
