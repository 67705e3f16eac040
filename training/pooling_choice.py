"""Which part of a pass should a task head read? Source-disjoint balanced accuracy of each part, and of pairs.

    python pooling_choice.py VECTORS.f32 POOLING HIDDEN ROWS.jsonl… [--parts mean@10 last+mean ...]

`VECTORS.f32` is written by `cargo run --release -p zen-edge-forge --example vectors` with the same POOLING and rows. Needs numpy, scipy
and scikit-learn. The regression is that of `zen-edge fit`: class-balanced, each part centred and divided by one number, L2; once with each
row counting the same, once with each source of a class. One dealing of sources into five folds, two strengths of L2: a look, not a
judgement. What is chosen by it is judged by `zen-edge fit` on other dealings.
"""

import argparse
import json

import numpy as np
from scipy.optimize import minimize
from sklearn.model_selection import StratifiedGroupKFold

from data import TASKS

STRENGTHS = (1, 3)


def parts(path, pooling, hidden, rows):
    names = pooling.split("+")
    widths = [1 if name == "length" else hidden for name in names]
    x = np.fromfile(path, np.float32).reshape(rows, sum(widths))
    return dict(zip(names, np.split(x, np.cumsum(widths)[:-1], axis=1)))


def scaled(x):
    z = x - x.mean(0)
    return z / np.sqrt((z**2).sum(1).mean())


def weights(labels, sources, by_source):
    keys = [f"{label}|{source}" for label, source in zip(labels, sources)] if by_source else labels
    _, inverse, count = np.unique(keys, return_inverse=True, return_counts=True)
    w = 1.0 / count[inverse] if by_source else np.ones(len(labels))
    for label in np.unique(labels):
        w[labels == label] *= len(labels) / len(np.unique(labels)) / w[labels == label].sum()
    return w.astype(np.float32)


def fit(x, labels, c, weight, iterations=80):
    n, d, k = len(labels), x.shape[1], len(TASKS)
    target = np.eye(k, dtype=np.float32)[labels]

    def loss(p):
        w, b = p[: k * d].reshape(k, d).astype(np.float32), p[k * d :].astype(np.float32)
        z = x @ w.T + b
        z -= z.max(1, keepdims=True)
        e = np.exp(z)
        q = e / e.sum(1, keepdims=True)
        value = -(weight * np.log(q[np.arange(n), labels] + 1e-12)).sum() + (w**2).sum() / (2 * c)
        g = (q - target) * weight[:, None]
        return value / n, np.concatenate([(g.T @ x + w / c).ravel(), g.sum(0)]).astype(np.float64) / n

    p = minimize(loss, np.zeros(k * d + k), jac=True, method="L-BFGS-B", options={"maxiter": iterations}).x
    return p[: k * d].reshape(k, d), p[k * d :]


def balanced(labels, predicted):
    return np.mean([(predicted[labels == k] == k).mean() for k in np.unique(labels)])


def main():
    args = argparse.ArgumentParser()
    args.add_argument("vectors"), args.add_argument("pooling"), args.add_argument("hidden", type=int)
    args.add_argument("rows", nargs="+"), args.add_argument("--parts", nargs="*")
    args = args.parse_args()
    rows = [json.loads(line) for path in args.rows for line in open(path, encoding="utf-8")]
    labels = np.array([TASKS.index(row["task"]) for row in rows])
    sources = np.array([row["source"] for row in rows])
    read = parts(args.vectors, args.pooling, args.hidden, len(rows))
    folds = list(StratifiedGroupKFold(5, shuffle=True, random_state=0).split(labels, labels, sources))
    for chosen in args.parts or [name for name in read if name != "length"]:
        x = np.concatenate([scaled(read[name]) for name in chosen.split("+")], 1)
        for by_source in (False, True):
            for c in STRENGTHS:
                predicted = np.zeros(len(labels), int)
                for tr, te in folds:
                    w, b = fit(x[tr], labels[tr], c, weights(labels[tr], sources[tr], by_source))
                    predicted[te] = (x[te] @ w.T + b).argmax(1)
                counts = "sources" if by_source else "rows"
                print(f"{chosen}\t{counts}\tC {c}\t{balanced(labels, predicted):.4f}", flush=True)


if __name__ == "__main__":
    main()
