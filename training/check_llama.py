#!/usr/bin/env python3
"""Does another engine agree? llama.cpp's tokens and read-out of the pack's self-test prompts and of dev prompts,
against Hugging Face tokenizers and the dequantised weights in float32.

    python training/check_llama.py packs/default [--dev ../shared/data/prompts/dev.jsonl --tokenizer target/training/tokenizer.json]"""

import argparse
import json
from pathlib import Path

import llama_cpp
import numpy as np

ap = argparse.ArgumentParser()
ap.add_argument("pack", type=Path)
ap.add_argument("--dev", type=Path)
ap.add_argument("--tokenizer", type=Path)
a = ap.parse_args()

llm = llama_cpp.Llama(str(a.pack / "model.gguf"), embedding=True, pooling_type=llama_cpp.LLAMA_POOLING_TYPE_LAST, n_ctx=4096, n_batch=4096,
                      n_ubatch=4096, n_threads=1, verbose=False)
ids = lambda p: llm.tokenize(p.encode(), add_bos=False, special=True)


def near(ids_, want):
    llm.reset()
    got = np.array(llm.embed(llm.detokenize(ids_, special=True).decode("utf-8", "replace"), normalize=False), np.float32)
    want = np.array(want, np.float32)
    return float(got @ want / np.linalg.norm(got) / np.linalg.norm(want)), float(np.linalg.norm(got) / np.linalg.norm(want))


ok = True
for e in json.loads((a.pack / "selftest.json").read_text(encoding="utf-8"))["prompts"]:
    same = ids(e["prompt"]) == e["ids"]
    cos, ratio = near(e["ids"], e["hidden"])
    print(f"{e['prompt']!r}: tokens {'equal' if same else 'DIFFER'}, cosine {cos:.5f}, norm ratio {ratio:.4f}")
    ok &= same and cos > 0.98
if a.dev:
    from tokenizers import Tokenizer

    tok = Tokenizer.from_file(str(a.tokenizer))
    rows = [json.loads(l)["prompt"][:4000] for l in open(a.dev, encoding="utf-8")]
    bad = sum(ids(p) != tok.encode(p).ids for p in rows)
    print(f"tokens of {len(rows)} dev prompts: {bad} differ")
raise SystemExit(0 if ok else 1)
