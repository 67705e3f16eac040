#!/usr/bin/env python3
"""Trains the default pack from the prompt and profile rows:

    python training/train_default_pack.py --data ../shared/data --out packs/default

Stages (each is skipped when its result lies in --work and its inputs are the same; delete a file to redo it):
tokenizer, teachers, targets, bag, distil, gguf, embed, heads. Seeded; the log goes to training/logs."""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer

import export
import heads
import route
import teachers
import vocab
from data import MAX_CHARS, MAX_TOKENS, SPLITS, TASKS, cut, load_profiles, load_prompts, profile_split, prompt_hash, sha256_file
from model import Shape, batches, embed_all, pad
from pretrain import bag_table, conditioned, distil
from render_readme import render
from targets import Lsa, Whiten, shape_facts

HERE = Path(__file__).resolve().parent
NAME = "zen-edge-default"
# Rows without an outcome in the profiles: reached by rules only (trained: false).
LOCAL = [("zen-nano-0.6b", ["cheap_chat", "general"]), ("zen-agent-4b", ["general", "reasoning"]), ("zen-coder-24b", ["code", "reasoning"])]


class Log:
    def __init__(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.f, self.t0 = open(path, "a", encoding="utf-8"), time.time()

    def __call__(self, s):
        line = f"[{time.time() - self.t0:7.1f} s] {s}"
        print(line, flush=True)
        print(line, file=self.f, flush=True)


def unit(v):
    return v / np.linalg.norm(v, axis=1, keepdims=True).clip(1e-9)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", type=Path, required=True)
    ap.add_argument("--out", type=Path, required=True)
    ap.add_argument("--work", type=Path, default=Path("target/training"))
    ap.add_argument("--seed", type=int, default=20261130)
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--sample", type=int, default=0, help="fit and judge the heads on so many rows of each set only (a first look)")
    ap.add_argument("--minutes", type=float, default=8, help="limit of the distil stage")
    ap.add_argument("--bag-only", action="store_true", help="stop after the bag stage and judge its table (seconds, for experiments)")
    ap.add_argument("--tokens", type=float, default=2.5e6, help="limit of the distil stage, in tokens")
    a = ap.parse_args()
    a.work.mkdir(parents=True, exist_ok=True)
    a.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(a.threads)
    log = Log(HERE / "logs" / "train.log")
    log(f"start: seed {a.seed}, {a.threads} thread(s), distil for at most {a.minutes} minutes or {a.tokens:g} tokens")
    prompts, profiles = load_prompts(a.data), load_profiles(a.data)
    held = {r["prompt"].strip() for s in ("dev", "test") for r in prompts[s]}
    texts = {s: [cut(r["prompt"]) for r in prompts[s]] for s in SPLITS}
    labels = {s: np.array([TASKS.index(r["task"]) for r in prompts[s]]) for s in SPLITS}
    # Text without labels for the vocabulary: the profile prompts that are in neither dev nor test, and not in train already.
    have = set(texts["train"])
    more = [cut(p["prompt"]) for p in profiles if p["prompt"].strip() not in held and cut(p["prompt"]) not in have]
    more = list(dict.fromkeys(more))

    # --- tokenizer
    tj = a.work / "tokenizer.json"
    if not tj.exists():
        log("tokenizer")
        vocab.build(texts["train"] + more, vocab.english_words(10000), tj)
    tok = Tokenizer.from_file(str(tj))
    encode = lambda ts: [e.ids[:MAX_TOKENS] for e in tok.encode_batch(ts)]
    ids = {s: encode(texts[s]) for s in SPLITS}
    log("tokens: " + ", ".join(f"{s} {sum(map(len, ids[s]))}" for s in SPLITS))

    # --- teachers and targets
    strings = [t.strip() or "." for t in vocab.token_strings(tok)]
    corpus, corpus_ids = texts["train"], ids["train"]
    lang = np.array([r["lang"] for r in prompts["train"]])
    # The multilingual teacher is twice as dear a token: it reads less of each English prompt, which MiniLM reads too.
    foreign = np.flatnonzero(lang != "en")
    english = np.array([i for i in np.flatnonzero(lang == "en") if prompt_hash(prompts["train"][i]["prompt"]) % 2 == 0])
    pick = lambda at: [corpus[i] for i in at]
    mini = unit(teachers.cached(a.work, "minilm-train", corpus, lambda t: teachers.minilm(t, 128, a.threads, log)))
    mini_tok = teachers.cached(a.work, "minilm-tokens", strings, lambda t: teachers.minilm(t, 16, a.threads, log))
    e5 = np.zeros((len(corpus), 384), np.float32)
    e5[foreign] = unit(teachers.cached(a.work, "e5-foreign", pick(foreign), lambda t: teachers.e5(t, 64, a.threads, log)))
    e5[english] = unit(teachers.cached(a.work, "e5-english", pick(english), lambda t: teachers.e5(t, 48, a.threads, log)))
    plain = np.array([t.isascii() for t in strings])
    spoken = np.flatnonzero(~plain | (np.arange(len(strings)) % 4 == 0))
    rest_en = np.setdiff1d(np.flatnonzero(lang == "en"), english)
    e5[rest_en] = unit(teachers.cached(a.work, "e5-english-b", pick(rest_en), lambda t: teachers.e5(t, 48, a.threads, log)))
    e5_tok = teachers.cached(a.work, "e5-tokens", [strings[i] for i in spoken], lambda t: teachers.e5(t, 16, a.threads, log, prefix=""))
    lsa = teachers.cached(a.work, "lsa-train", corpus, lambda t: Lsa(192, a.seed % 1000).fit_transform(t))
    facts = np.stack([shape_facts(t) for t in corpus])
    # MiniLM knows English only: its vectors of other prompts would teach noise.
    none = np.ones(len(corpus), bool)
    parts = [(mini, 128, 0.3, 1.0, lang == "en"), (e5, 128, 0.3, 1.0, none), (lsa, 64, 0.3, 1.0, none), (facts, 15, 0.1, 1.5, none)]
    ys, ms = [], []
    for v, dim, soft, weight, known in parts:
        axes = Whiten(dim, soft).fit(v[known])
        ys.append(weight * axes(v) * known[:, None])
        ms.append(np.repeat(known[:, None], dim, 1))
    y, m = torch.tensor(np.hstack(ys).astype(np.float32)), torch.tensor(np.hstack(ms).astype(np.float32))

    # --- bag
    bag = a.work / "bag.npy"
    if not bag.exists():
        log("bag of tokens")
        # What a token means, by both teachers; where one has not been asked, by what the other one says.
        mt, et = unit(mini_tok - mini_tok[plain].mean(0)), np.zeros((len(strings), 384), np.float32)
        et[spoken] = unit(e5_tok - e5_tok.mean(0))
        shared = spoken[plain[spoken]]
        rest = np.setdiff1d(np.flatnonzero(plain), shared)
        guess = lambda frm, to, at: frm[at] @ np.linalg.solve(frm[shared].T @ frm[shared] + 30.0 * np.eye(384), frm[shared].T @ to[shared])
        et[rest] = guess(mt, et, rest)
        mt[~plain] = guess(et, mt, np.flatnonzero(~plain))
        c = np.hstack([mt, et])
        _, u = np.linalg.eigh(c.T @ c)
        n = np.bincount([t for r in corpus_ids for t in r], minlength=len(strings)) + 1
        init = (c @ u[:, ::-1][:, :250]) * (1e-3 / (1e-3 + n / n.sum()))[:, None]  # smooth inverse frequency
        np.save(bag, bag_table(init.astype(np.float32), corpus_ids, y, m, epochs=8, seed=a.seed, log=log).numpy())
    table = conditioned(torch.tensor(np.load(bag)), corpus_ids)

    if a.bag_only:
        xb = np.stack([table[torch.tensor(r)].mean(0).numpy() for s in SPLITS for r in ids[s]])
        yb = np.concatenate([labels[s] for s in SPLITS])
        sb = [r["source"] for s in SPLITS for r in prompts[s]]
        lb = np.array([r["lang"] for s in SPLITS for r in prompts[s]])
        for c in (0.003, 0.03):
            for z in heads.source_disjoint(xb, yb, sb, c, (0, 1)):
                ok = z.argmax(1) == yb
                log(f"bag, C {c}: {heads.scores(yb, z.argmax(1))}, en {ok[lb == 'en'].mean():.3f}, zh {ok[lb == 'zh'].mean():.3f}")
        return

    # --- distil
    shape = Shape(vocab=len(strings))
    ckpt = a.work / "backbone.pt"
    if not ckpt.exists():
        log(f"distil: {shape}")
        # Single words, so that a prompt of one or two has a meaning too: only the English teacher was asked for them all.
        words = [i for i, t in enumerate(strings) if t.isascii() and t.isalpha() and len(t) > 2 and prompt_hash(t) % 3 == 0]
        wy, wm = torch.zeros(len(words), y.shape[1]), torch.zeros(len(words), y.shape[1])
        dim = parts[0][1]
        wy[:, :dim] = torch.tensor(Whiten(dim, 0.3).fit(mini[lang == "en"])(unit(mini_tok[words])).astype(np.float32))
        wm[:, :dim] = 1
        ends = [e.offsets for e in tok.encode_batch(corpus)]
        facts_of = lambda i, n: torch.from_numpy(parts[-1][3] * axes(shape_facts(corpus[i][: ends[i][n - 1][1]])[None])[0])
        distil(shape, table, corpus_ids + encode([strings[i] for i in words]), torch.cat([y, wy]), torch.cat([m, wm]), len(corpus_ids), facts_of, ckpt,
               tokens_budget=a.tokens, cap=160, step_tokens=2048, lr=5e-4, seed=a.seed, threads=a.threads, prefix=0.25, drop=0.0, minutes=a.minutes, log=log)
    state = torch.load(ckpt, weights_only=False)
    from model import Backbone

    trained = Backbone(Shape(**state["shape"]))
    trained.load_state_dict(state["model"])
    trained.eval()
    sample = ids["dev"][:50]
    before = embed_all(trained, sample) / trained.norm.weight.detach().numpy()
    trained.turn(state["head"]["weight"])
    after = embed_all(trained, sample) / trained.norm.weight.detach().numpy()
    gaps = [np.linalg.norm(v[1:] - v[:-1], axis=1) for v in (before, after)]
    assert np.allclose(*gaps, rtol=1e-3), "turning the residual stream changed the network"

    # --- gguf
    gg = a.out / "model.gguf"
    mark = a.work / "gguf.json"
    if not (gg.exists() and mark.exists() and json.loads(mark.read_text()) == [sha256_file(ckpt), sha256_file(gg)]):
        log("gguf")
        export.check_against_transformers(trained, [[5], [1, 2, 3], ids["dev"][0], max(ids["dev"], key=len)], log)
        export.write_f16(trained, tj, a.work / "f16.gguf", NAME)
        export.quantise(a.work / "f16.gguf", a.work / "q4_k_m.gguf", "Q4_K_M", a.threads)
        gg.write_bytes((a.work / "q4_k_m.gguf").read_bytes())
        mark.write_text(json.dumps([sha256_file(ckpt), sha256_file(gg)]))
    log(f"model.gguf: {gg.stat().st_size} bytes, {export.types(gg)}")
    served = export.read(gg)

    # --- embed, by the weights that serve
    digest = sha256_file(gg)[:16]
    x = {}
    if a.sample:
        take = lambda ts: sorted(sorted(range(len(ts)), key=lambda i: prompt_hash(ts[i]))[: a.sample])
        for s in SPLITS:
            at = take(texts[s])
            prompts[s], texts[s], ids[s] = ([v[i] for i in at] for v in (prompts[s], texts[s], ids[s]))
            labels[s] = labels[s][at]
        profiles = [profiles[i] for i in take([p["prompt"] for p in profiles])]
        digest += f"-{a.sample}"
    prof_ids = encode([cut(p["prompt"]) for p in profiles])
    for s, rows in [*ids.items(), ("profiles", prof_ids)]:
        f = a.work / f"x-{s}-{digest}.npy"
        if not f.exists():
            log(f"embed {s}")
            np.save(f, embed_all(served, rows, log=log))
        x[s] = np.load(f)
    some = sorted(range(len(ids["dev"])), key=lambda i: prompt_hash(texts["dev"][i]))[:200]
    fp32 = embed_all(trained, [ids["dev"][i] for i in some])
    cos = (unit(fp32) * unit(x["dev"][some])).sum(1)
    log(f"Q4_K_M against float32 weights, 200 dev prompts: cosine mean {cos.mean():.4f}, least {cos.min():.4f}")

    # --- heads
    log("heads")
    report = {"backbone": {"shape": state["shape"], "bytes": gg.stat().st_size, "types": export.types(gg), "history": state["history"],
                           "q4_k_m_vs_f32_cosine": {"mean": round(float(cos.mean()), 5), "min": round(float(cos.min()), 5)}}}
    grid = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
    all_x = np.concatenate([x[s] for s in SPLITS])
    all_y = np.concatenate([labels[s] for s in SPLITS])
    n_train = len(labels["train"])
    src = [r["source"] for s in SPLITS for r in prompts[s]]
    # C by source-disjoint CV inside train: dev comes from train's own sources and would always ask for less L2.
    tr_src = [r["source"] for r in prompts["train"]]
    inner = {c: heads.scores(labels["train"], heads.source_disjoint(x["train"], labels["train"], tr_src, c, (7,))[0].argmax(1))["balanced"] for c in grid}
    c_best = max(inner, key=inner.get)
    log(f"C by source-disjoint CV on train: {inner} -> {c_best}")
    w, b = heads.fit_task(x["train"], labels["train"], c_best)
    zd, zt = (heads.logits(x[s], w, b) for s in ("dev", "test"))
    t_dev = heads.temperature(zd, labels["dev"])
    same = heads.logits(fp32, w, b).argmax(1) == zd[some].argmax(1)
    report["backbone"]["q4_k_m_vs_f32_task_agreement"] = round(float(same.mean()), 4)
    log(f"Q4_K_M against float32 weights: the same task for {same.mean():.3f}")
    outer = heads.source_disjoint(all_x, all_y, src, c_best, (0, 1, 2))
    t_cv = heads.temperature(outer[0], all_y)
    report["task"] = {
        "C": c_best, "C_choice": {str(k): v for k, v in inner.items()}, "temperature_dev": round(t_dev, 4), "temperature_source_disjoint": round(t_cv, 4),
        "ece_dev_before_after": [round(heads.ece(zd, labels["dev"]), 4), round(heads.ece(zd / t_dev, labels["dev"]), 4)],
        "ece_test": round(heads.ece(zt / t_dev, labels["test"]), 4),
        "ece_source_disjoint_at_T_dev_and_T_cv": [round(heads.ece(outer[0] / t, all_y), 4) for t in (t_dev, t_cv)],
        "dev": heads.scores(labels["dev"], zd.argmax(1)), "test": heads.scores(labels["test"], zt.argmax(1)),
        "source_disjoint": [heads.scores(all_y, z.argmax(1)) for z in outer],
        # Of these, the rows whose text the backbone has not read (dev and test): nearest to a prompt from the field.
        "source_disjoint_unread": [heads.scores(all_y[n_train:], z[n_train:].argmax(1)) for z in outer],
        "confusion_source_disjoint": heads.confusion(all_y, outer[0].argmax(1)),
        "majority": heads.scores(labels["test"], np.full(len(labels["test"]), np.bincount(labels["train"]).argmax())),
    }
    for k in ("dev", "test"):
        log(f"{k}: accuracy {report['task'][k]['accuracy']}, balanced {report['task'][k]['balanced']}")
    log("source-disjoint CV: " + "; ".join(f"accuracy {r['accuracy']}, balanced {r['balanced']}" for r in report["task"]["source_disjoint"] + report["task"]["source_disjoint_unread"]))
    # --- route
    price = route.prices(profiles)
    learned = sorted(price)
    side = np.array([profile_split(p["prompt"]) == "train" and p["prompt"].strip() not in held for p in profiles])
    test_side = np.array([profile_split(p["prompt"]) == "test" for p in profiles])
    prior = np.sort(np.random.default_rng(a.seed).permutation(len(labels["train"]))[:5000])
    prior_tasks = [TASKS[labels["train"][i]] for i in prior]
    sub = lambda m: [p for p, k in zip(profiles, m) if k]
    fold = np.array([prompt_hash("fold" + p["prompt"]) % 2 for p in profiles])
    choice = {}
    for strength in (100.0, 300.0, 1000.0, 3000.0, 10000.0):
        got = []
        for k in (0, 1):
            m_tr, m_te = side & (fold != k), side & (fold == k)
            rw, rb = route.fit(x["profiles"][m_tr], sub(m_tr), x["train"][prior], prior_tasks, learned, price, strength)
            e = route.evaluate(heads.logits(x["profiles"][m_te], rw, rb), sub(m_te), learned, price, means=route.file_means(sub(m_tr)))
            got.append(np.mean([v["head"]["quality"] for v in e.values()]))
        choice[strength] = round(float(np.mean(got)), 4)
    strength = max(choice, key=choice.get)
    rw, rb = route.fit(x["profiles"][side], sub(side), x["train"][prior], prior_tasks, learned, price, strength)
    zp = heads.logits(x["profiles"][test_side], rw, rb)
    report["route"] = {"strength": strength, "strength_choice": {str(k): v for k, v in choice.items()}, "lambda": route.LAMBDA, "price_usd_per_1k_tokens": price,
                       "test": route.evaluate(zp, sub(test_side), learned, price, means=route.file_means(sub(side)))}
    for f, r in report["route"]["test"].items():
        log(f"route {f}: head {r['head']}, best single {r['best_single']}, per class {r['best_per_class']}, oracle {r['oracle']}, picks {r['picks']}")
    t_route = route_temperature(zp, sub(test_side), learned)
    report["route"]["temperature"] = round(t_route, 4)

    # --- feature head: principal axes of the read-out, softly whitened
    fw = Whiten(256, 1.0).fit(x["train"])
    f_w = (fw.u / fw.scale).T.astype(np.float32)
    f_b = -(f_w @ fw.mean).astype(np.float32)

    # --- files
    catalog = learned + [m for m, _ in LOCAL]
    pad_rows = len(LOCAL)
    tensors = {
        "task_head.weight": w, "task_head.bias": b,
        "route_head.weight": np.vstack([rw, np.zeros((pad_rows, rw.shape[1]), np.float32)]), "route_head.bias": np.concatenate([rb, np.zeros(pad_rows, np.float32)]),
        "feature_head.weight": f_w, "feature_head.bias": f_b,
    }
    save_file({k: np.ascontiguousarray(v, np.float32) for k, v in tensors.items()}, a.out / "heads.safetensors")
    config = {
        "base": NAME, "tasks": TASKS, "catalog": catalog, "frozen_backbone": True, "hidden_size": shape.hidden, "feature_dim": 256,
        "pooling": "last", "embd_normalize": -1, "max_chars": MAX_CHARS, "max_tokens": MAX_TOKENS, "keep": "start", "add_bos": False,
        "add_eos": False, "plain_text": False, "trained": [True] * len(learned) + [False] * pad_rows,
        "temperature": {"task": round(t_cv, 4), "route": round(t_route, 4)}, "lambda_cost": route.LAMBDA,
        "backbone_sha256": sha256_file(gg), "heads_sha256": sha256_file(a.out / "heads.safetensors"),
    }
    (a.out / "router_config.json").write_text(json.dumps(config, indent=1) + "\n")
    (a.out / "catalog.yaml").write_text(catalog_yaml(learned, price, route.class_means(profiles, learned)))
    probe = ["write a python function to reverse a linked list", "\u7528\u4e2d\u6587\u5199\u4e00\u9996\u5173\u4e8e\u79cb\u5929\u7684\u8bd7", "Hi! How are you today?\n"]
    pid = encode(probe)
    (a.out / "selftest.json").write_text(json.dumps({
        "what": "the read-out of the dequantised weights in float32 (torch); compare by cosine, >= 0.99 with int8 activations",
        "backbone_sha256": config["backbone_sha256"],
        "prompts": [{"prompt": p, "ids": i, "hidden": [round(float(v), 6) for v in h]} for p, i, h in zip(probe, pid, embed_all(served, pid))],
    }, ensure_ascii=False) + "\n")
    report["probe"] = []
    for p, h in zip([*probe, "What is 17 * 23 + 5?", "hello", "What is the capital of France?"], embed_all(served, encode([*probe, "What is 17 * 23 + 5?", "hello", "What is the capital of France?"]))):
        pt = heads.softmax((h @ w.T + b)[None] / t_cv)[0]
        zr = (h @ rw.T + rb)[None]
        pr = heads.softmax(zr / t_route)[0]
        top = np.argsort(-pr)[:3]
        e = {"prompt": p, "task": TASKS[int(pt.argmax())], "confidence": round(float(pt.max()), 3), "top3": [[learned[k], round(float(zr[0][k]), 3), round(float(pr[k]), 3)] for k in top]}
        report["probe"].append(e)
        log(f"probe {e}")
    by = {}
    for l, ok in zip((r["lang"] for s in SPLITS for r in prompts[s]), outer[0].argmax(1) == all_y):
        by.setdefault(l if l in ("en", "zh") else "other", []).append(ok)
    report["task"]["per_language"] = {k: [round(float(np.mean(v)), 4), len(v)] for k, v in by.items()}
    report["sample"] = a.sample
    report["bytes"] = sum(f.stat().st_size for f in a.out.iterdir() if f.suffix in (".gguf", ".safetensors", ".json", ".yaml"))
    (HERE / "logs" / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    (a.out / "README.md").write_text(render(report), encoding="utf-8")
    log(f"done: {report['bytes']} bytes")


def route_temperature(z, profiles, models):
    """T for softmax(logits / T) as the chance that a model is among the best for the prompt; each prompt judged among its file's models."""
    best_t, best = None, None
    for t in np.exp(np.linspace(np.log(0.01), np.log(1.0), 40)):
        nll = []
        for zi, p in zip(z, profiles):
            k = [models.index(m) for m in p["outcome"]]
            q = np.array([p["outcome"][m][0] for m in p["outcome"]])
            if q.max() == q.min():
                continue
            target = (q >= q.max() - 1e-9) / (q >= q.max() - 1e-9).sum()
            nll.append(-(target * np.log(heads.softmax(zi[None, k] / t)[0] + 1e-12)).sum())
        if best is None or np.mean(nll) < best:
            best, best_t = float(np.mean(nll)), float(t)
    return best_t


def catalog_yaml(learned, price, means):
    """zen-router's catalog format. A model lists the tasks in which its mean observed quality is within .05 of the best, or its best one."""
    lines = ["# Models that the default pack routes to: ids, backend, provider, tasks, USD per 1k tokens, blended.",
             "# Prices and tasks come from the outcome rows that the route head was fitted on (README.md); put your own models here and refit.", "models:"]
    for m in learned:
        score = {t: d[m][0] - max(q for q, _ in d.values()) for t, d in means.items() if m in d}
        good = [t for t in TASKS if score.get(t, -1) >= -0.05] or [max(score, key=score.get)]
        if "general" in good and "cheap_chat" not in good:
            good.append("cheap_chat")
        context = f", max_context: {route.CONTEXT[m]}" if m in route.CONTEXT else ""
        provider = "openai" if m.startswith("gpt") else route.OPEN
        lines.append(f"  - {{id: {m}, backend: cloud, provider: {provider}, tasks: [{', '.join(good)}], cost_per_1k: {price[m]}{context}}}")
    lines.append("  # Local models without outcomes: reached by rules (offline, or where they list the task), never by a learned score.")
    for m, tasks in LOCAL:
        lines.append(f"  - {{id: {m}, backend: local, provider: engine, tasks: [{', '.join(tasks)}], cost_per_1k: 0.0}}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
