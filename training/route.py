"""The route head: each row predicts a model's quality on a prompt, less lambda times its price.

A row is a ridge regression of the observed quality on the read-out, so a route logit is an expected reward on a 0..1
scale and the temperature in the config turns logits into a distribution. Two rules keep it from claiming what no
row shows: for a task in which a model has no observation, it is taken to be as good as the mean of those that have, or, where
none has, as any other, with up to PRICE_EDGE more for the cheaper one; and models that were never observed have `trained: false`."""

import numpy as np

from data import TASKS

LAMBDA = 0.35  # per USD per 1k tokens, zen-router's default
# USD per 1k tokens, the mean of input and output price. The open models' from LLMRouter's price list (recovered
# from the profile rows: cost grows by price / 4 with each character), the other two from RouteLLM's.
OPEN = "open-weights"
# Where no model has an outcome (vision, long documents, small talk), the cheapest is preferred to the dearest by so much quality;
# without it the noise of the fit decided, and "hello" went to a code model.
PRICE_EDGE = 0.1
# Context windows in tokens, from the makers' model cards; a model that is not listed has none on record here.
CONTEXT = {
    "gpt-4-1106-preview": 128000, "mixtral-8x7b-instruct-v0.1": 32768, "llama-3.1-8b-instruct": 131072, "qwen2.5-7b-instruct": 32768,
    "gemma-2-9b-it": 8192, "codegemma-7b": 8192, "mistral-7b-instruct-v0.3": 32768, "llama-3.3-nemotron-super-49b-v1": 131072,
    "llama3-chatqa-1.5-8b": 8192, "llama3-chatqa-1.5-70b": 8192,
}


def prices(profiles):
    """{model: USD per 1k tokens}: the slope of a row's cost over its length / 4 is the input price; the two models with
    published separate prices are listed."""
    known = {"gpt-4-1106-preview": (0.010 + 0.030) / 2, "mixtral-8x7b-instruct-v0.1": 0.0006}
    by = {}
    for p in profiles:
        for m, (_, cost) in p["outcome"].items():
            by.setdefault(m, []).append((len(p["prompt"]) / 4000.0, p["task"], cost))
    out = {}
    for m, rows in by.items():
        if m in known:
            out[m] = known[m]
            continue
        tasks = sorted({t for _, t, _ in rows})
        a = np.array([[n] + [float(t == k) for k in tasks] for n, t, _ in rows])
        out[m] = round(float(np.linalg.lstsq(a, np.array([c for _, _, c in rows]), rcond=None)[0][0]), 5)
    return out


def class_means(profiles, models):
    """{task: {model: (mean quality, n)}} over the given rows."""
    out = {}
    for p in profiles:
        for m, (q, _) in p["outcome"].items():
            s = out.setdefault(p["task"], {}).setdefault(m, [0.0, 0])
            s[0] += q
            s[1] += 1
    return {t: {m: (v[0] / v[1], v[1]) for m, v in d.items()} for t, d in out.items()}


def fit(x, profiles, x_prior, prior_tasks, models, price, strength, lam=LAMBDA):
    """(W [models, H], b). `x` are the profile prompts' vectors; `x_prior`, `prior_tasks` are unlabelled-by-outcome
    prompts of each task, used for the no-evidence rule."""
    means = class_means(profiles, models)
    overall = np.mean([q for d in means.values() for q, _ in d.values()])
    lp = np.log([price[m] for m in models])
    edge = dict(zip(models, PRICE_EDGE * (lp.max() - lp) / (lp.max() - lp.min())))
    mu, sd = x.mean(0), float(x.std(0).mean())  # one scale: the read-out's geometry is the prior
    w = np.zeros((len(models), x.shape[1]), np.float32)
    b = np.zeros(len(models), np.float32)
    for k, m in enumerate(models):
        mine = [i for i, p in enumerate(profiles) if m in p["outcome"]]
        q = [profiles[i]["outcome"][m][0] for i in mine]
        rows = [x[mine]]
        for t in TASKS:
            if m in means.get(t, {}):
                continue
            at = [i for i, u in enumerate(prior_tasks) if u == t]
            known = [v for v, _ in means.get(t, {}).values()]
            rows.append(x_prior[at])
            q += [float(np.mean(known)) if known else float(overall + edge[m] - PRICE_EDGE / 2)] * len(at)
        z = (np.concatenate(rows) - mu) / sd
        z1 = np.hstack([z, np.ones((len(z), 1))])
        reg = strength * np.eye(z1.shape[1])
        reg[-1, -1] = 1e-6
        a = np.linalg.solve(z1.T @ z1 + reg, z1.T @ np.array(q))
        w[k] = a[:-1] / sd
        b[k] = a[-1] - (a[:-1] / sd) @ mu - lam * price[m]
    return w, b


def evaluate(z, profiles, models, price, lam=LAMBDA, means=None):
    """Quality and cost of each way to choose, for each profile file on its own (the two have disjoint models)."""
    out = {}
    for name in sorted({p["file"] for p in profiles}):
        at = [i for i, p in enumerate(profiles) if p["file"] == name]
        mine = [m for m in models if m in profiles[at[0]]["outcome"]]
        q = np.array([[profiles[i]["outcome"][m][0] for m in mine] for i in at])
        c = np.array([[profiles[i]["outcome"][m][1] for m in mine] for i in at])
        zz = z[at][:, [models.index(m) for m in mine]]
        rows = np.arange(len(at))

        def stat(pick):
            return {"quality": round(float(q[rows, pick].mean()), 4), "cost_usd_per_1k_prompts": round(float(c[rows, pick].mean() * 1000), 4)}

        best = [int(np.argmax([means[name]["all"][m] for m in mine]))] * len(at)
        per_class = [int(np.argmax([means[name].get(profiles[i]["task"], means[name]["all"])[m] for m in mine])) for i in at]
        cheapest = [int(np.argmin([price[m] for m in mine]))] * len(at)
        r = {
            "prompts": len(at), "models": len(mine), "random": {"quality": round(float(q.mean()), 4), "cost_usd_per_1k_prompts": round(float(c.mean() * 1000), 4)},
            "cheapest": stat(cheapest), "best_single": {"model": mine[best[0]], **stat(best)}, "best_per_class": stat(per_class),
            "head": stat(zz.argmax(1)), "oracle": stat((q - 1e-6 * c / c.max()).argmax(1)), "picks": {},
        }
        for m, n in zip(*np.unique(zz.argmax(1), return_counts=True)):
            r["picks"][mine[int(m)]] = int(n)
        # The same head at other prices of money: quality against cost.
        base = zz + lam * np.array([price[m] for m in mine])
        r["sweep"] = [{"lambda": lm, **stat((base - lm * np.array([price[m] for m in mine])).argmax(1))} for lm in (0, 0.35, 2, 5, 10, 20, 50, 100, 300)]
        out[name] = r
    return out


def file_means(profiles):
    """{file: {"all" or task: {model: mean quality}}} on the training side: what the baselines may know."""
    acc = {}
    for p in profiles:
        for key in ("all", p["task"]):
            for m, (q, _) in p["outcome"].items():
                acc.setdefault(p["file"], {}).setdefault(key, {}).setdefault(m, []).append(q)
    return {f: {k: {m: float(np.mean(v)) for m, v in d.items()} for k, d in t.items()} for f, t in acc.items()}
