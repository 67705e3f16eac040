#!/usr/bin/env python3
"""Time and peak memory of the command, from process start to answer.

  python benches/route_cost.py [--models target/peers/models] [--heads ../shared/data/zen-router] [--runs 9] [--threads 2]

Builds the release command first. Peak resident memory is told apart: anonymous (the process's own) and file (mapped pages
of the weights, which the system may take back).
"""

import argparse
import json
import statistics
import subprocess
import threading
import time

import record

SHORT = "write a python function to reverse a linked list"
LONG = " ".join(["The committee met again on Tuesday and argued about the bridge, its cost and its colour."] * 24)


def run(words):
    """One run: wall seconds, peak RSS in MB by kind, and what the command says of itself."""
    start = time.perf_counter()
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    peak = {"RssAnon": 0, "RssFile": 0}

    def watch():
        path = f"/proc/{child.pid}/status"
        while child.poll() is None:
            try:
                for line in open(path):
                    key = line.split(":", 1)[0]
                    if key in peak:
                        peak[key] = max(peak[key], int(line.split()[1]) / 1000)
            except OSError:
                return
            time.sleep(0.0005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, err = child.communicate()
    wall = time.perf_counter() - start
    watcher.join()
    if child.returncode:
        raise SystemExit(f"{' '.join(words)}\n{err.decode()}")
    answer = json.loads(out)
    return {"wall_ms": wall * 1e3, "anon_mb": peak["RssAnon"], "file_mb": peak["RssFile"], "answer": answer}


def main():
    ap = argparse.ArgumentParser()
    record.arguments(ap, runs=9)
    a = ap.parse_args()
    command = record.built(a.command)
    sides = {"default pack": ["route"]}
    for name, file in [("Gemma 3 270M Q4_K_M", "gemma-3-270m-q4_k_m"), ("SmolLM2 135M Q4_1", "smollm2-135m-q4_1")]:
        if (a.models / f"{file}.gguf").exists():
            sides[name] = ["embed", "--model", str(a.models / f"{file}.gguf")]
    random = a.models / "qwen3-0.6b-rand-q4_k_m.gguf"
    if random.exists() and a.heads.exists():
        sides["Qwen3 0.6B Q4_K_M, random weights"] = ["route", "--model", str(random), "--heads", str(a.heads)]
    runs = {}
    for i in range(a.runs + 1):
        for name, words in sides.items():
            for length, prompt in [("short", SHORT), ("long", LONG)]:
                words_here = [str(command), *words, "--json", "--threads", str(a.threads), prompt]
                got = run(words_here)
                if i:  # The first run warms the page cache.
                    answer = got.pop("answer")
                    got["tokens"], got["timings"] = answer["tokens"], answer["timings"]
                    runs.setdefault(f"{name}, {length}", []).append(got)
    rows = ["| model, prompt | tokens | process, ms | prefill, ms | anonymous MB | file MB |", "|---|--:|--:|--:|--:|--:|"]
    for name, all_runs in runs.items():
        mid = lambda key: statistics.median(r[key] for r in all_runs)  # noqa: E731
        prefill = statistics.median(r["timings"]["prefill"] for r in all_runs)
        rows.append(
            f"| {name} | {all_runs[0]['tokens']} | {mid('wall_ms'):.0f} | {prefill:.1f} "
            f"| {max(r['anon_mb'] for r in all_runs):.0f} | {max(r['file_mb'] for r in all_runs):.0f} |"
        )
    table = "\n".join(rows)
    table += f"\n\nMedians of {a.runs} runs with a warm page cache, {a.threads} threads; memory is the highest that was seen."
    record.keep("route-cost", {"threads": a.threads, "runs": runs}, table)


if __name__ == "__main__":
    main()
