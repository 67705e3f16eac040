"""Qwen3 in plain torch, for training: the same arithmetic as transformers' Qwen3ForCausalLM (checked by export.py),
but with only what the read-out needs: the last layer runs its query, attention output and FFN for the last token alone."""

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Shape:
    vocab: int = 16384
    hidden: int = 256  # K-quants need rows of a multiple of 256
    layers: int = 2
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 64
    ffn: int = 768
    theta: float = 10000.0
    eps: float = 1e-6
    context: int = 4096

    def dict(self):
        return asdict(self)


class RmsNorm(nn.Module):
    def __init__(self, n, eps, init=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((n,), init))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rope_tables(n, dim, theta, device=None):
    inv = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    a = torch.outer(torch.arange(n, dtype=torch.float32), inv)
    a = torch.cat([a, a], -1)
    return a.cos(), a.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Layer(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        self.attn_norm = RmsNorm(s.hidden, s.eps)
        self.q = nn.Linear(s.hidden, s.heads * s.head_dim, bias=False)
        self.k = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=False)
        self.v = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=False)
        self.o = nn.Linear(s.heads * s.head_dim, s.hidden, bias=False)
        self.q_norm = RmsNorm(s.head_dim, s.eps)
        self.k_norm = RmsNorm(s.head_dim, s.eps)
        self.ffn_norm = RmsNorm(s.hidden, s.eps)
        self.gate = nn.Linear(s.hidden, s.ffn, bias=False)
        self.up = nn.Linear(s.hidden, s.ffn, bias=False)
        self.down = nn.Linear(s.ffn, s.hidden, bias=False)

    def forward(self, x, cos, sin, last=None, drop=0.0):
        """x [B, T, H]. With `last` [B] (index of each row's last token) the result is [B, 1, H]."""
        s, (B, T, _) = self.s, x.shape
        n = self.attn_norm(x)
        k = rotate(self.k_norm(self.k(n).view(B, T, s.kv_heads, s.head_dim)), cos[:T, None], sin[:T, None]).transpose(1, 2)
        v = self.v(n).view(B, T, s.kv_heads, s.head_dim).transpose(1, 2)
        if last is None:
            q = self.q_norm(self.q(n).view(B, T, s.heads, s.head_dim))
            q = rotate(q, cos[:T, None], sin[:T, None]).transpose(1, 2)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            rows = torch.arange(B)
            q = self.q_norm(self.q(n[rows, last]).view(B, 1, s.heads, s.head_dim))
            q = rotate(q, cos[last][:, None, None], sin[last][:, None, None]).transpose(1, 2)
            mask = (torch.arange(T)[None] <= last[:, None])[:, None, None]
            a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
            x, T = x[rows, last][:, None], 1
        x = x + F.dropout(self.o(a.transpose(1, 2).reshape(B, T, s.heads * s.head_dim)), drop, self.training)
        n = self.ffn_norm(x)
        return x + F.dropout(self.down(F.silu(self.gate(n)) * self.up(n)), drop, self.training)


class Backbone(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        self.embed = nn.Embedding(s.vocab, s.hidden)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.norm = RmsNorm(s.hidden, s.eps)
        cos, sin = rope_tables(s.context, s.head_dim, s.theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.init()

    def init(self):
        nn.init.normal_(self.embed.weight, std=0.02)
        for layer in self.layers:
            for m in (layer.q, layer.k, layer.v, layer.gate, layer.up):
                nn.init.normal_(m.weight, std=1 / math.sqrt(self.s.hidden))
            for m in (layer.o, layer.down):
                nn.init.normal_(m.weight, std=0.3 / math.sqrt(m.in_features * len(self.layers)))

    def init_from_bag(self, table: torch.Tensor, gain: float = 32.0, pad: float = 0.0):
        """Starts as a bag of tokens: the last layer attends evenly and copies, so that the read-out begins as the last
        token's own embedding plus `gain` times the mean of all (normalised). `table` [vocab, hidden - 1 or less] is a bag model's table.

        RMSNorm would undo the length of a row, which is the weight of a word: the last column pads every row to one
        length. Pooling sits in the last layer, where only the last token's query is computed;
        the layers before it begin near the identity and learn context."""
        s = self.s
        with torch.no_grad():
            w = torch.zeros(s.vocab, s.hidden)
            n2 = table.pow(2).sum(1)
            top = n2.quantile(0.995)
            w[:, : table.shape[1]] = table * (top / n2.clamp(min=1e-12)).sqrt().clamp(max=1.0)[:, None]
            w[:, -1] = (top - w.pow(2).sum(1)).clamp(min=0).sqrt()
            # Rows of length sqrt(hidden): a mean over tokens varies 1/16 as much as a token, so beside rows of length 1 the first
            # steps of the layers before the pool (a shift that all tokens share) drowned it, at any rate that learns.
            self.embed.weight.copy_(w * math.sqrt(s.hidden) / top.sqrt())
            pool = self.layers[-1]
            pool.q_norm.weight.fill_(0.25)  # small: nearly even attention
            pool.k_norm.weight.fill_(0.25)
            width = s.kv_heads * s.head_dim
            if width != s.hidden:
                raise ValueError("init_from_bag copies the whole state: kv_heads * head_dim must be the hidden size")
            # The gain is shared between v and o, so that an optimiser's absolute steps are small beside both.
            eye = torch.eye(width) * math.sqrt(gain)
            # `pad` > 0 would copy the padding column too, which keeps the final norm nearly constant and with it the size of the
            # mean's deviation. It starts no better and trains worse: .382 unexplained after 1.0 M tokens, against .343 without.
            eye[-1] *= pad
            self.norm.weight[:-1] = 1 + 2 * pad
            pool.v.weight.copy_(eye)
            group = s.heads // s.kv_heads
            o = torch.zeros(s.hidden, s.heads, s.head_dim)
            for h in range(s.heads):
                kv = h // group
                o[kv * s.head_dim : (kv + 1) * s.head_dim, h] = torch.eye(s.head_dim) * math.sqrt(gain) / group
            pool.o.weight.copy_(o.view(s.hidden, -1))
            # What the other layers add must start small.
            for layer in self.layers:
                for m in (layer.down, *([layer.o] if layer is not pool else [])):
                    m.weight.mul_(0.1)

    @torch.no_grad()
    def turn(self, head: torch.Tensor):
        """Turns the residual stream, without changing what the network computes, until the read-out's own coordinates are
        the right ones for a linear head: the distance of two read-outs is then that of the targets `head` [d, hidden] predicts
        from them, axes in falling order. An L2 penalty on a head's raw weights then means "trust what the teachers vouch for".

        Fitted on standardised coordinates the same read-outs gave .615, so .656 (source-disjoint, rows of unseen text)."""
        # The padding column stays an axis of its own, the last: it is 15 of a row's length of 16, and spread over all columns it
        # took the precision that the rest needs (read-out of Q4_K_M against float32: cosine .94).
        g = self.norm.weight.double()
        m = head.double() * g
        _, scale, vt = torch.linalg.svd(m[:, :-1])
        q = torch.block_diag(vt, torch.ones(1, 1, dtype=vt.dtype))  # rows: the new axes, in old coordinates
        scale = torch.cat([scale, m[:, -1].norm()[None]])
        for layer in self.layers:
            for norm, inputs in ((layer.attn_norm, (layer.q, layer.k, layer.v)), (layer.ffn_norm, (layer.gate, layer.up))):
                for m in inputs:
                    m.weight.copy_((m.weight.double() * norm.weight.double()) @ q.T)
                norm.weight.fill_(1.0)
            for m in (layer.o, layer.down):
                m.weight.copy_(q @ m.weight.double())
        self.embed.weight.copy_(self.embed.weight.double() @ q.T)
        self.norm.weight.copy_(scale / scale.pow(2).mean().sqrt())

    def forward(self, ids, last, drop=0.0):
        """ids [B, T] right-padded, last [B]: the state of each row's last token after the final norm, [B, H].
        Causal attention keeps what stands after `last` out of it."""
        x = F.dropout(self.embed(ids), drop, self.training)
        for layer in self.layers[:-1]:
            x = layer(x, self.cos, self.sin, None, drop)
        return self.norm(self.layers[-1](x, self.cos, self.sin, last, drop))[:, 0]


def batches(lengths, budget, rng=None, rows=1 << 30):
    """Index lists of like length with about `budget` tokens and at most `rows` rows each; shuffled when `rng` is given."""
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i] + (rng.random() * 0.15 * lengths[i] if rng else 0), i))
    out, at = [], 0
    while at < len(order):
        part = [order[at]]
        at += 1
        while at < len(order) and len(part) < rows and (len(part) + 1) * lengths[order[at]] <= budget:
            part.append(order[at])
            at += 1
        out.append(part)
    if rng:
        rng.shuffle(out)
    return out


def pad(rows):
    last = torch.tensor([len(r) - 1 for r in rows])
    x = torch.zeros(len(rows), int(last.max()) + 1, dtype=torch.long)
    for i, r in enumerate(rows):
        x[i, : len(r)] = torch.tensor(r)
    return x, last


@torch.inference_mode()
def embed_all(model, rows, budget=4096, log=None):
    """The read-out of every token list, [n, H] float32."""
    import time

    model.eval()
    out = torch.zeros(len(rows), model.s.hidden)
    lengths = [len(r) for r in rows]
    done, total, t0, beat = 0, sum(lengths), time.time(), time.time()
    for part in batches(lengths, budget):
        x, last = pad([rows[i] for i in part])
        out[part] = model(x, last)
        done += sum(lengths[i] for i in part)
        if log and time.time() - beat > 20:
            beat = time.time()
            log(f"  embed: {done}/{total} tokens, {done / (beat - t0):.0f} tokens/s")
    return out.numpy()
