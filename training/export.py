"""The trained backbone as GGUF (F16, then Q4_K_M by llama.cpp's quantiser) and back: what the file really holds,
dequantised to float, is what the heads are fitted on."""

import ctypes
import json
from pathlib import Path

import gguf
import numpy as np
import torch

from model import Backbone, Shape
from vocab import SPECIAL

NAMES = {"attn_norm": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "q_norm": "attn_q_norm",
         "k_norm": "attn_k_norm", "ffn_norm": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
HF = {"attn_norm": "input_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
      "o": "self_attn.o_proj", "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm",
      "ffn_norm": "post_attention_layernorm", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}


def pairs(s: Shape):
    """(our parameter name, GGUF name, Hugging Face name)."""
    yield "embed.weight", "token_embd.weight", "model.embed_tokens.weight"
    yield "norm.weight", "output_norm.weight", "model.norm.weight"
    for i in range(s.layers):
        for ours, g in NAMES.items():
            yield f"layers.{i}.{ours}.weight", f"blk.{i}.{g}.weight", f"model.layers.{i}.{HF[ours]}.weight"


def write_f16(model: Backbone, tokenizer: Path, out: Path, name: str):
    """Keys and tensors as llama.cpp's convert_hf_to_gguf.py writes them for Qwen3ForCausalLM (tied embedding)."""
    s = model.s
    j = json.loads(tokenizer.read_text(encoding="utf-8"))
    by_id = {i: t for t, i in j["model"]["vocab"].items()}
    tokens = [by_id[i] for i in range(len(by_id))]
    types = [gguf.TokenType.NORMAL] * len(tokens)
    for a in j["added_tokens"]:
        assert a["id"] == len(tokens), "added tokens follow the BPE"
        tokens.append(a["content"])
        types.append(gguf.TokenType.CONTROL)
    assert len(tokens) == s.vocab
    merges = [m if isinstance(m, list) else m.split(" ") for m in j["model"]["merges"]]
    tid = {t: i for i, t in enumerate(tokens)}

    w = gguf.GGUFWriter(str(out), "qwen3")
    w.add_type("model")
    w.add_name(name)
    w.add_license("apache-2.0")
    w.add_block_count(s.layers)
    w.add_context_length(s.context)
    w.add_embedding_length(s.hidden)
    w.add_feed_forward_length(s.ffn)
    w.add_head_count(s.heads)
    w.add_head_count_kv(s.kv_heads)
    w.add_rope_freq_base(s.theta)
    w.add_layer_norm_rms_eps(s.eps)
    w.add_key_length(s.head_dim)
    w.add_value_length(s.head_dim)
    w.add_pooling_type(gguf.PoolingType.LAST)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges([" ".join(m) for m in merges])
    w.add_bos_token_id(tid[SPECIAL[0]])
    w.add_eos_token_id(tid[SPECIAL[2]])
    w.add_pad_token_id(tid[SPECIAL[0]])
    w.add_add_bos_token(False)
    w.add_add_eos_token(False)
    p = dict(model.named_parameters())
    for ours, g, _ in pairs(s):
        t = p[ours].detach().float().numpy()
        w.add_tensor(g, t.astype(np.float16) if t.ndim == 2 else t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def quantise(src: Path, out: Path, kind: str = "Q4_K_M", threads: int = 1):
    """llama.cpp's own quantiser, through llama-cpp-python."""
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    params.nthread = threads
    rc = llama_cpp.llama_model_quantize(str(src).encode(), str(out).encode(), ctypes.byref(params))
    if rc:
        raise RuntimeError(f"llama_model_quantize {src} -> {out} failed with {rc}")


def read(path: Path) -> Backbone:
    """The backbone as this file holds it: every tensor dequantised to float32."""
    r = gguf.GGUFReader(str(path))
    f = {k: v.contents() for k, v in r.fields.items()}
    s = Shape(
        vocab=len(f["tokenizer.ggml.tokens"]), hidden=f["qwen3.embedding_length"], layers=f["qwen3.block_count"],
        heads=f["qwen3.attention.head_count"], kv_heads=f["qwen3.attention.head_count_kv"], head_dim=f["qwen3.attention.key_length"],
        ffn=f["qwen3.feed_forward_length"], theta=f["qwen3.rope.freq_base"], eps=f["qwen3.attention.layer_norm_rms_epsilon"],
        context=f["qwen3.context_length"],
    )
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32).reshape(tuple(int(n) for n in t.shape[::-1])) for t in r.tensors}
    model = Backbone(s)
    p = dict(model.named_parameters())
    with torch.no_grad():
        for ours, g, _ in pairs(s):
            p[ours].copy_(torch.tensor(tensors.pop(g)))
    if tensors:
        raise ValueError(f"{path}: tensors that the model has no place for: {sorted(tensors)}")
    return model.eval()


def types(path: Path):
    """{type name: [count, bytes]} of a GGUF's tensors."""
    out = {}
    for t in gguf.GGUFReader(str(path)).tensors:
        e = out.setdefault(t.tensor_type.name, [0, 0])
        e[0] += 1
        e[1] += int(t.n_bytes)
    return out


@torch.no_grad()
def check_against_transformers(model: Backbone, rows, log=print) -> float:
    """Worst relative distance to transformers' Qwen3Model on token lists `rows`: guards the hand-written forward."""
    from transformers import Qwen3Config, Qwen3Model

    s = model.s
    config = Qwen3Config(
        vocab_size=s.vocab, hidden_size=s.hidden, intermediate_size=s.ffn, num_hidden_layers=s.layers, num_attention_heads=s.heads,
        num_key_value_heads=s.kv_heads, head_dim=s.head_dim, rms_norm_eps=s.eps, max_position_embeddings=s.context, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": s.theta}, attention_bias=False, use_sliding_window=False,
    )
    config._attn_implementation = "eager"
    twin = Qwen3Model(config).eval()
    p = dict(model.named_parameters())
    missing, unexpected = twin.load_state_dict({h[len("model."):]: p[o].detach() for o, _, h in pairs(s)}, strict=False)
    assert not unexpected and not missing, (missing, unexpected)
    worst = 0.0
    for r in rows:
        x = torch.tensor([r])
        a = twin(input_ids=x).last_hidden_state[0, -1]
        b = model(x, torch.tensor([len(r) - 1]))[0]
        worst = max(worst, float((a - b).norm() / a.norm()))
    log(f"  own forward against transformers: worst relative distance {worst:.2e}")
    assert worst < 1e-4, "the training forward is not Qwen3's"
    return worst
