#!/usr/bin/env python3
"""Prefill and decode beside llama.cpp, in turn, on the same file.

  python benches/prefill.py [--model target/peers/models/qwen3-0.6b-rand-q4_k_m.gguf] [--rounds 5] [--sizes 16 128 512]
      [--record NAME] [--priority]

llama.cpp prefills in one ubatch and computes the logits of the last token only: the fair comparison of kernels. (Its
embedding mode, which is what its users get, also runs the LM head on every token.) Where llama.cpp has a backend for our
instruction set alone, that one runs. Decode is one token a pass, its logits
counted, behind 8 tokens. `--priority` runs both sides at real-time priority (Linux, root): the processor then belongs to
the one that is measured, the memory still does not.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

import record

LLAMA = """
import ctypes, json, pathlib, sys, time
import numpy as np
import llama_cpp as L
model_path, threads, sizes = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
if len(sys.argv) > 4:
    ggml = ctypes.CDLL(str(pathlib.Path(L.__file__).parent / "lib" / "libggml.so.0"))
    ggml.ggml_backend_load.restype = ctypes.c_void_p
    assert ggml.ggml_backend_load(sys.argv[4].encode()), sys.argv[4]
L.llama_log_set(ctypes.cast(None, L.llama_log_callback), ctypes.c_void_p())
mp = L.llama_model_default_params(); mp.n_gpu_layers = 0
model = L.llama_model_load_from_file(model_path.encode(), mp)
cp = L.llama_context_default_params()
cp.n_ctx = cp.n_batch = cp.n_ubatch = max(sizes) + 8
cp.n_threads = cp.n_threads_batch = threads
ctx = L.llama_init_from_model(model, cp)
vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
out = {}
for n in sizes:
    batch = L.llama_batch_init(n, 0, 1)
    batch.n_tokens = n
    for i in range(n):
        batch.token[i] = i * 7919 % vocab; batch.pos[i] = i
        batch.n_seq_id[i] = 1; batch.seq_id[i][0] = 0; batch.logits[i] = i == n - 1
    times = []
    while len(times) < 3 or (sum(times) < 2 and len(times) < 15):
        L.llama_memory_clear(L.llama_get_memory(ctx), True)
        start = time.perf_counter()
        assert L.llama_decode(ctx, batch) == 0
        times.append(time.perf_counter() - start)
    out[n] = n / sorted(times)[len(times) // 2]
L.llama_memory_clear(L.llama_get_memory(ctx), True)
times = []
for i in range(56):
    batch = L.llama_batch_init(1, 0, 1)
    batch.n_tokens = 1
    batch.token[0] = i * 7919 % vocab; batch.pos[0] = i
    batch.n_seq_id[0] = 1; batch.seq_id[0][0] = 0; batch.logits[0] = True
    start = time.perf_counter()
    assert L.llama_decode(ctx, batch) == 0
    times.append(time.perf_counter() - start)
out[0] = 1 / sorted(times[8:])[24]
print(json.dumps(out))
"""


# llama.cpp's CPU backends by instruction set, where it was built with all of them: CMAKE_ARGS="-DGGML_NATIVE=OFF
# -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON". None of these uses AMX.
VARIANTS = {"avx2": "haswell", "avx-vnni": "alderlake", "avx512-vnni": "icelake"}


def variant(isa):
    """The backend for `isa`, as a list of one path; empty where llama.cpp was built for this machine alone."""
    import llama_cpp

    name = f"libggml-cpu-{VARIANTS.get(isa)}.so"
    return sorted(pathlib.Path(llama_cpp.__file__).parent.parent.glob(f"**/{name}"))[:1]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", type=pathlib.Path, default=record.ROOT / "target/peers/models/qwen3-0.6b-rand-q4_k_m.gguf")
    ap.add_argument("--ours", type=pathlib.Path, help="the built example, else it is built")
    ap.add_argument("--isa", default="avx2")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--sizes", type=int, nargs="+", default=[16, 128, 512])
    ap.add_argument("--record", default="prefill-llama-cpp")
    ap.add_argument("--priority", action="store_true")
    ap.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    a = ap.parse_args()
    ours = a.ours
    if not ours:
        words = ["cargo", "build", "--release", "-p", "zen-edge-core", "--example", "speed"]
        subprocess.run(words, cwd=record.ROOT, check=True)
        ours = record.ROOT / "target/release/examples/speed"
    first = ["chrt", "-f", "30"] if a.priority else []
    backend = variant(a.isa)
    found = {}
    for _ in range(a.rounds):
        for threads in a.threads:
            words = [*first, ours, a.model, a.isa, threads, *a.sizes]
            text = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=True).stdout
            for n, speed in re.findall(r"(\d+) tokens:\s+([\d.]+) tok/s", text):
                found.setdefault((threads, int(n)), {"ours": [], "llama": []})["ours"].append(float(speed))
            for speed in re.findall(r"decode:\s+([\d.]+) tok/s", text):
                found.setdefault((threads, 0), {"ours": [], "llama": []})["ours"].append(float(speed))
            words = [*first, sys.executable, "-c", LLAMA, str(a.model), str(threads), json.dumps(a.sizes), *map(str, backend)]
            text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            for n, speed in json.loads(text.strip().splitlines()[-1]).items():
                found[(threads, int(n))]["llama"].append(speed)
    import llama_cpp

    rows = ["| threads | tokens | ours, tok/s | llama.cpp, tok/s | ratio (lowest to highest of a round) |", "|--:|--:|--:|--:|--:|"]
    for (threads, n), sides in sorted(found.items()):
        ratios = sorted(o / l for o, l in zip(sides["ours"], sides["llama"]))
        mid = statistics.median
        rows.append(
            f"| {threads} | {n or 'decode'} | {mid(sides['ours']):.0f} | {mid(sides['llama']):.0f} "
            f"| {mid(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"
        )
    table = "\n".join(rows)
    table += f"\n\n{a.model.name}; {a.rounds} rounds in turn, medians; ours {a.isa}; llama-cpp-python {llama_cpp.__version__}, {f'its backend {backend[0].stem}' if backend else 'its native CPU backend'}{'; both at real-time priority' if a.priority else ''}."
    raw = {f"{threads} threads, " + (f"{n} tokens" if n else "decode"): sides for (threads, n), sides in found.items()}
    record.keep(a.record, {"llama_cpp_python": llama_cpp.__version__, "backend": [b.name for b in backend], "isa": a.isa, "priority": a.priority, "found": raw}, table)


if __name__ == "__main__":
    main()
