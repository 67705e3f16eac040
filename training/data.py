"""Reading the prompt and profile rows, and the one truncation rule that training and serving share."""

import hashlib
import json
from pathlib import Path

TASKS = ["code", "reasoning", "math", "creative", "vision", "long_context", "cheap_chat", "general"]
MAX_CHARS = 4000  # Unicode scalar values, start kept: zen-router's rule
MAX_TOKENS = 512
SPLITS = ("train", "dev", "test")


def cut(prompt: str) -> str:
    """The character half of the truncation rule; the token half is applied after tokenising."""
    return prompt[:MAX_CHARS]


def read_jsonl(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def load_prompts(data: Path):
    """{split: rows}; a row has id, prompt, task, source, license, lang."""
    return {s: read_jsonl(data / "prompts" / f"{s}.jsonl") for s in SPLITS}


def load_profiles(data: Path):
    """[{prompt, task, file, outcome: {model: (quality, cost)}}], one entry a prompt, in file order."""
    out = {}
    for name in ("llmrouter", "routellm"):
        for r in read_jsonl(data / "profiles" / f"{name}.jsonl"):
            e = out.setdefault((name, r["prompt"]), {"prompt": r["prompt"], "task": r["task"], "file": name, "outcome": {}})
            e["outcome"][model_id(r["model"])] = (float(r["quality"]), float(r["cost"]))
    return list(out.values())


def model_id(raw: str) -> str:
    """Profile ids to catalog ids: the organisation prefix falls off, lower case."""
    return raw.split("/")[-1].lower()


def prompt_hash(prompt: str) -> int:
    return int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:8], "big")


def profile_split(prompt: str) -> str:
    """70/30 by prompt hash; the same prompt is on one side in every file."""
    return "train" if prompt_hash(prompt) % 10 < 7 else "test"


def sha256_file(path) -> str:
    h = hashlib.sha256()
    with open(path, "rb") as f:
        for chunk in iter(lambda: f.read(1 << 20), b""):
            h.update(chunk)
    return h.hexdigest()


def unlabelled(prompts, profiles, seed: int, spans: int = 6000):
    """Further text for the backbone, without labels: the profile prompts that are in neither dev nor test nor train, and short
    spans (12 to 48 words, from a random place) of the longer train prompts and profile prompts."""
    import random

    train = [cut(r["prompt"]) for r in prompts["train"]]
    held = {r["prompt"].strip() for s in ("dev", "test") for r in prompts[s]}
    have = set(train)
    more = list(dict.fromkeys(cut(p["prompt"]) for p in profiles if p["prompt"].strip() not in held and cut(p["prompt"]) not in have))
    rng = random.Random(seed)
    # The whole prompt, not its cut start: the rest of a long document is text like any other.
    long = [r["prompt"] for r in prompts["train"] if len(r["prompt"]) > 300] + [m for m in more if len(m) > 300]
    out = []
    while len(out) < spans:
        t = rng.choice(long)
        if " " in t[:80]:
            words = t.split(" ")
            n = rng.randint(12, 48)
            at = rng.randrange(max(1, len(words) - n))
            out.append(" ".join(words[at : at + n])[:600].strip())
        else:
            n = rng.randint(12, 80)
            at = rng.randrange(max(1, len(t) - n))
            out.append(t[at : at + n].strip())
    return more, [o for o in dict.fromkeys(out) if len(o) > 8]
