"""The backbone's training: label-free distillation, first as a bag of tokens (seconds), then as the whole network."""

import json
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from model import Backbone, Shape, batches, pad


def masked(p, y, m):
    """Mean squared error over the targets that are known (m is 1 there)."""
    return ((p - y).pow(2) * m).sum() / m.sum()


def unexplained(p, y, m):
    """The share of the targets' variance that the prediction leaves, over the known ones."""
    mean = (y * m).sum(0) / m.sum(0).clamp(min=1)
    return float(((p - y).pow(2) * m).sum() / ((mean - y).pow(2) * m).sum())


def ridge(x, y, m, strength):
    """(W [d, k], b [d]) of a ridge regression on standardised inputs for raw ones; targets that share a mask share a solve."""
    mu, sd = x.mean(0), x.std(0) + 1e-4
    z = torch.cat([(x - mu) / sd, torch.ones(len(x), 1)], 1)
    w = torch.zeros(z.shape[1], y.shape[1])
    columns = {}
    for j in range(y.shape[1]):
        columns.setdefault(m[:, j].numpy().tobytes(), []).append(j)
    for js in columns.values():
        r = m[:, js[0]] > 0
        a = z[r].T @ z[r] + strength * int(r.sum()) * torch.eye(z.shape[1])
        w[:, js] = torch.linalg.solve(a, z[r].T @ y[r][:, js])
    return (w[:-1] / sd[:, None]).T, w[-1] - (mu / sd) @ w[:-1]


def bag_table(init, ids, y, m, *, epochs, seed, lr=0.02, log=print):
    """A bag-of-tokens model: y ~ W mean(table[ids]). Returns the table [vocab, d]. `init` [vocab, d]."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    table = nn.EmbeddingBag.from_pretrained(torch.tensor(init), freeze=False, mode="mean")
    head = nn.Linear(init.shape[1], y.shape[1])
    # The head starts at the least-squares answer for the initial table: only then does the table have to move.
    with torch.no_grad():
        x = torch.stack([table.weight[torch.tensor(r)].mean(0) for r in ids])
        w, b = ridge(x, y, m, 0.01)
        head.weight.copy_(w)
        head.bias.copy_(b)
        log(f"  bag: the initial table leaves {unexplained(head(x), y, m):.3f} of the targets unexplained (in sample)")
    opt = torch.optim.Adam([{"params": table.parameters(), "lr": lr * float(init.std())}, {"params": head.parameters(), "lr": 2e-3}])
    held = [i for i in range(len(ids)) if i % 20 == 0]
    rest = [i for i in range(len(ids)) if i % 20]

    def flat(part, keep=1.0):
        rows = [[t for t in ids[i] if keep == 1.0 or rng.random() < keep] or ids[i][:1] for i in part]
        off = np.cumsum([0] + [len(r) for r in rows[:-1]])
        return torch.tensor([t for r in rows for t in r]), torch.tensor(off)

    best, best_w = None, None
    for e in range(epochs):
        rng.shuffle(rest)
        total, t0 = 0.0, time.time()
        for a in range(0, len(rest), 128):
            part = rest[a : a + 128]
            loss = masked(head(table(*flat(part, 0.8))), y[part], m[part])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += float(loss.detach()) * len(part)
        with torch.no_grad():
            h = unexplained(head(table(*flat(held))), y[held], m[held])
        log(f"  bag epoch {e + 1}/{epochs}: loss {total / len(rest):.4f}, held-out unexplained {h:.4f}, {time.time() - t0:.1f} s")
        if best is None or h < best:
            best, best_w = h, table.weight.detach().clone()
    return best_w


def conditioned(table, ids, soft=0.1):
    """The table in coordinates in which the means over prompts are centred and about white. The bag predicts as well
    as before (a linear head follows), but the network trains: with the raw table all states share a large mean, the head's
    weights are huge, and at any useful rate the first fifty steps destroyed what the bag knew (unexplained .47 -> .83)."""
    x = torch.stack([table[torch.tensor(r)].mean(0) for r in ids])
    mean = x.mean(0)
    w, u = torch.linalg.eigh(torch.cov((x - mean).T.double()))
    w = w.clamp(min=0)
    return (table - mean) @ (u / (w + soft * w.mean()).sqrt()).float()


def distil(shape: Shape, table, ids, y, m, prompts, facts, out: Path, *, tokens_budget, cap, step_tokens, lr, seed, threads, prefix, drop, minutes, judge_seconds=100, log=print):
    """Trains the whole backbone on y [n, d] for about `tokens_budget` tokens or `minutes`, whichever ends first; cosine decay.
    Rows from `prompts` on are single words: they are never held out. A share `prefix` of the rows is cut at a random token, so that the state is right long before the end.
    `facts(i, n)` gives the last columns of row i's target for its first n tokens: a cut prompt must not claim the length of the whole
    (it did at first, and the read-out lost the length). The other targets stay those of the whole prompt.
    The state with the least held-out error is kept. Checkpoints at the end of each epoch (resumable)."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    rng = random.Random(seed)
    model = Backbone(shape)
    model.init_from_bag(table)
    head = nn.Linear(shape.hidden, y.shape[1])
    nn.init.normal_(head.weight, std=0.02)
    nn.init.zeros_(head.bias)
    held = [i for i in range(prompts) if i % 25 == 0]
    rest = [i for i in range(len(ids)) if i % 25 or i >= prompts]
    fit_head(model, head, ids, y, m, [i for i in rest if len(ids[i]) <= cap][:1500], cap)
    # What the layers before the pool add is shared by all tokens at first, so the mean does not average it out: one step of
    # 1e-4 on them alone doubled the loss (0.22 -> 0.43), the same step on any other weight changed it by less than 1 %.
    early = [p for l in model.layers[:-1] for p in (l.o.weight, l.down.weight)]
    slow = {id(p) for p in early}
    decay = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n and id(p) not in slow] + [head.weight]
    plain = [p for n, p in model.named_parameters() if p.ndim == 1] + [head.bias]
    groups = [
        {"params": decay, "weight_decay": 0.02, "peak": lr},
        {"params": early, "weight_decay": 0.0, "peak": lr * 0.03},
        {"params": plain, "weight_decay": 0.0, "peak": lr},
        {"params": [model.embed.weight], "weight_decay": 0.0, "peak": lr * 2},
    ]
    opt = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98))
    seen, step, history, epoch, spent = 0, 0, [], 0, 0.0
    state = out.with_suffix(".state")
    if state.exists():
        s = torch.load(state, weights_only=False)
        model.load_state_dict(s["model"])
        head.load_state_dict(s["head"])
        opt.load_state_dict(s["opt"])
        seen, step, history, epoch, spent = s["seen"], s["step"], s["history"], s["epoch"], s["spent"]
        log(f"  resumed at {seen} tokens, epoch {epoch}")
    t0, beat, seen0, run = time.time(), time.time(), seen, []
    clock = lambda: spent + time.time() - t0
    best = s["best"] if seen else {"h": 9.0}

    def judge():
        h = evaluate(model, head, ids, y, m, held)
        log(f"  held-out unexplained share after {seen} tokens: {h:.4f}")
        history.append({"step": step, "tokens": seen, "held_out_unexplained": round(h, 5), "seconds": round(clock(), 1)})
        if h < best["h"]:
            copy = lambda n: {k: v.clone() for k, v in n.state_dict().items()}
            best.update(h=h, model=copy(model), head=copy(head))

    judge()
    judged, stop = clock(), False
    while not stop:
        rng = random.Random(seed * 1000 + epoch)
        rows = {}
        for i in rest:
            r = ids[i][:cap] if rng.random() < 0.8 else ids[i]
            if len(r) > 8 and rng.random() < prefix:
                r = r[: rng.randint(max(4, len(r) // 4), len(r))]
            rows[i] = r
        for part in batches([len(rows[i]) for i in rest], step_tokens, rng, 128):
            part = [rest[j] for j in part]
            done = max(seen / tokens_budget, clock() / (minutes * 60))
            if done >= 1:
                stop = True
                break
            scale = min(1.0, (step + 1) / 30) * (0.03 + 0.97 * 0.5 * (1 + np.cos(np.pi * done)))
            for g in opt.param_groups:
                g["lr"] = g["peak"] * scale
            x, last = pad([rows[i] for i in part])
            want = y[part]
            for j, i in enumerate(part):
                if len(rows[i]) < len(ids[i]):
                    f = facts(i, len(rows[i]))
                    want[j, -len(f) :] = f
            model.train()
            loss = masked(head(model(x, last, drop)), want, m[part])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            seen += sum(len(rows[i]) for i in part)
            run.append((float(loss.detach()), len(part)))
            if time.time() - beat > 20:
                beat = time.time()
                rate = (seen - seen0) / (beat - t0)
                mean = sum(a * b for a, b in run) / sum(b for _, b in run)
                log(f"  step {step}, epoch {epoch + 1}, {seen} tokens ({100 * done:.0f} %), loss {mean:.4f}, {rate:.0f} tokens/s")
                history.append({"step": step, "tokens": seen, "loss": round(mean, 5), "seconds": round(clock(), 1)})
                run = []
            if stop or clock() - judged > judge_seconds:
                judge()
                judged = clock()
        else:
            epoch += 1
            torch.save({"model": model.state_dict(), "head": head.state_dict(), "opt": opt.state_dict(), "seen": seen, "step": step,
                        "history": history, "epoch": epoch, "spent": clock(), "best": best}, state)
    judge()
    model.load_state_dict(best["model"])
    head.load_state_dict(best["head"])
    torch.save({"model": model.state_dict(), "head": head.state_dict(), "shape": shape.dict(), "history": history}, out)
    state.unlink(missing_ok=True)
    return history


@torch.no_grad()
def states(model, ids, part, cap=512):
    model.eval()
    out = torch.zeros(len(part), model.s.hidden)
    for b in batches([min(cap, len(ids[i])) for i in part], 4096):
        x, last = pad([ids[part[j]][:cap] for j in b])
        out[b] = model(x, last)
    return out


@torch.no_grad()
def fit_head(model, head, ids, y, m, part, cap):
    w, b = ridge(states(model, ids, part, cap), y[part], m[part], 0.05)
    head.weight.copy_(w)
    head.bias.copy_(b)


@torch.no_grad()
def evaluate(model, head, ids, y, m, part):
    return unexplained(head(states(model, ids, part)), y[part], m[part])
