"""What the backbone learns to say about a prompt, without any label: the teachers' vectors, the leading components
of its TF-IDF vector (LSA), and plain facts of its form (length, digits, scripts, line breaks, punctuation).

Fitted on train prompts (and profile prompts that are in neither dev nor test)."""

import re

import numpy as np


def shape_facts(text: str) -> np.ndarray:
    n = max(1, len(text))
    count = lambda pattern: len(re.findall(pattern, text))
    share = lambda pattern: count(pattern) / n
    return np.array(
        [
            np.log1p(n) / 4.0,
            np.log1p(text.count("\n")) / 2.0,
            np.log1p(len(text.split())) / 4.0,
            float(n >= 3900),
            share(r"[0-9]") * 5,
            share(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"),
            share(r"[A-Z]") * 5,
            share(r"[(){}\[\]<>=;_/\\`$^|*+#&%@~]") * 5,
            share(r"[,.:!?'\"-]") * 5,
            float("?" in text or "\uff1f" in text),
            float(text[-1:] in "?\uff1f"),
            share(r"[\u0370-\u1fff]"),
            share(r"[\u00c0-\u024f]") * 5,
            float(bool(re.search(r"\n\s{2,}\S", text))),
            float(bool(re.search(r"(?m)^\s*\(?[A-Da-d][).:]\s", text))),
        ],
        np.float32,
    )


class Lsa:
    """TF-IDF of characters 2-4 within words and of words 1-2, then a truncated SVD."""

    def __init__(self, dim, seed):
        self.dim, self.seed = dim, seed

    def fit_transform(self, texts):
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.pipeline import make_union

        self.v = make_union(
            TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), max_features=40000, sublinear_tf=True, dtype=np.float32),
            TfidfVectorizer(analyzer="word", ngram_range=(1, 2), max_features=30000, sublinear_tf=True, dtype=np.float32),
        )
        x = self.v.fit_transform(self.ends(texts))
        self.svd = TruncatedSVD(self.dim, n_iter=3, random_state=self.seed)
        return self.svd.fit_transform(x).astype(np.float32)

    def transform(self, texts):
        return self.svd.transform(self.v.transform(self.ends(texts))).astype(np.float32)

    @staticmethod
    def ends(texts):
        return [t if len(t) <= 2000 else t[:1000] + " " + t[-1000:] for t in texts]


class Whiten:
    """Centres, rotates to principal axes, and divides by a softened scale, so that a squared error weighs every
    direction that matters and none that is noise: scale_i = (variance_i + mean variance * soft) ** .5."""

    def __init__(self, dim, soft=0.5):
        self.dim, self.soft = dim, soft

    def fit(self, x):
        self.mean = x.mean(0)
        c = np.cov((x - self.mean).T.astype(np.float64))
        w, u = np.linalg.eigh(c)
        order = np.argsort(w)[::-1][: self.dim]
        self.u = u[:, order].astype(np.float32)
        var = w[order].clip(0)
        self.scale = np.sqrt(var + var.mean() * self.soft).astype(np.float32)
        return self

    def __call__(self, x):
        return ((x - self.mean) @ self.u) / self.scale
