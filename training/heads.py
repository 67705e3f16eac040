"""Linear heads on the read-out: fitting, calibration, and source-disjoint evaluation."""

import numpy as np
import torch
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedGroupKFold

from data import TASKS


def fit_task(x, labels, c, weight=None):
    """(W [8, H], b [8]) of a multinomial logistic regression, class-balanced, L2 of strength 1/c (scikit-learn's
    convention) on the read-out as it is, centred and divided by one number: its geometry is the prior (Backbone.turn).
    Standardising each coordinate first costs four points on unseen sources.

    L-BFGS in float32: scikit-learn's float64 one took 20 s a fit where this takes one, for the same answer."""
    k = len(TASKS)
    n = np.bincount(labels, minlength=k)
    weight = np.ones(len(labels)) if weight is None else weight
    weight = weight * (len(labels) / (k * n.clip(1)))[labels]
    return fit_soft(x, np.eye(k, dtype=np.float32)[labels], c, weight)


def fit_soft(x, target, c, weight=None, iterations=100):
    """Multinomial logistic regression on soft targets [n, k]; returns (W [k, H], b [k]) for raw inputs."""
    mu, sd = x.mean(0), float(x.std(0).mean())
    z = torch.from_numpy(((x - mu) / sd).astype(np.float32))
    t = torch.from_numpy(np.asarray(target, np.float32))
    s = torch.ones(len(t)) if weight is None else torch.from_numpy(np.asarray(weight, np.float32))
    w = torch.zeros(t.shape[1], x.shape[1], requires_grad=True)
    b = torch.zeros(t.shape[1], requires_grad=True)
    opt = torch.optim.LBFGS([w, b], max_iter=iterations, history_size=20, tolerance_grad=1e-6, line_search_fn="strong_wolfe")

    def closure():
        opt.zero_grad()
        nll = -(s * (t * torch.log_softmax(z @ w.T + b, 1)).sum(1)).sum()
        loss = (nll + w.pow(2).sum() / (2 * c)) / len(t)
        loss.backward()
        return loss

    opt.step(closure)
    w, b = w.detach().numpy() / sd, b.detach().numpy()
    return w.astype(np.float32), (b - w @ mu).astype(np.float32)


def logits(x, w, b):
    return x @ w.T + b


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def scores(labels, predicted):
    labels, predicted = np.asarray(labels), np.asarray(predicted)
    return {
        "n": int(len(labels)),
        "accuracy": round(float((labels == predicted).mean()), 4),
        "balanced": round(float(balanced_accuracy_score(labels, predicted)), 4),
        "per_class": {t: round(float((predicted[labels == i] == i).mean()), 4) for i, t in enumerate(TASKS) if (labels == i).any()},
    }


def confusion(labels, predicted):
    m = np.zeros((len(TASKS), len(TASKS)), int)
    np.add.at(m, (np.asarray(labels), np.asarray(predicted)), 1)
    return m.tolist()


def temperature(z, labels):
    """The T that minimises the log loss of softmax(z / T), by golden-section search on log T."""
    labels = np.asarray(labels)
    nll = lambda t: -np.log(softmax(z / np.exp(t))[np.arange(len(z)), labels] + 1e-12).mean()
    a, b, g = -3.0, 3.0, (5**0.5 - 1) / 2
    for _ in range(60):
        c, d = b - g * (b - a), a + g * (b - a)
        a, b = (a, d) if nll(c) < nll(d) else (c, b)
    return float(np.exp((a + b) / 2))


def ece(z, labels, bins=15):
    """Expected calibration error of the arg max, equal-width bins."""
    p = softmax(z)
    conf, hit = p.max(1), p.argmax(1) == np.asarray(labels)
    at = np.minimum((conf * bins).astype(int), bins - 1)
    return float(sum(abs(conf[at == k].mean() - hit[at == k].mean()) * (at == k).mean() for k in range(bins) if (at == k).any()))


def folds(labels, sources, seed=0, n=5):
    """Whole sources held out, classes as even as sources allow."""
    return list(StratifiedGroupKFold(n, shuffle=True, random_state=seed).split(np.zeros(len(labels)), labels, sources))


def source_disjoint(x, labels, sources, c, seeds=(0,), refit=fit_task):
    """Out-of-fold predictions and logits of the heads alone; the vectors `x` must not have seen the labels."""
    labels = np.asarray(labels)
    results = []
    for seed in seeds:
        z = np.zeros((len(labels), len(TASKS)), np.float32)
        for tr, te in folds(labels, sources, seed):
            w, b = refit(x[tr], labels[tr], c)
            z[te] = logits(x[te], w, b)
        results.append(z)
    return results
