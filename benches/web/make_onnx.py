"""A model of random weights in ONNX, of the shapes that run.mjs measures: for onnxruntime-web beside us.

    pip install -r requirements.txt
    python make_onnx.py qwen3-0.6b FOLDER
    python make_onnx.py gemma-3-270m FOLDER

It is built as the published ones are: `MatMulNBits` of int4 in blocks of 32 with `accuracy_level` 4 (activations in int8
where a kernel for it is there), `GroupQueryAttention` with the rotary embedding in it, `SimplifiedLayerNormalization`,
the embedding by `GatherBlockQuantized`, also int4. It gives the last token's hidden state after the last norm and has no LM
head, which is the least that a router needs. The weights' distribution changes no time: none of these operators looks at values.

`model.onnx` and `model.onnx_data` are written; then one prompt runs by the native onnxruntime, and must give finite numbers that
the first token has a part in.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

BLOCK = 32
CONTEXT = 1024
MICROSOFT = "com.microsoft"


@dataclass
class Shape:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    ffn: int
    vocabulary: int
    theta: float
    # Gemma: norms behind the blocks too, GELU, a scaled embedding, and windows in five of six layers.
    gemma: bool = False
    window: int = -1


SHAPES = {
    "qwen3-0.6b": Shape(28, 1024, 16, 8, 128, 3072, 151_936, 1e6),
    "gemma-3-270m": Shape(18, 640, 4, 1, 256, 2048, 262_144, 1e6, gemma=True, window=512),
}


class Graph:
    """Nodes and weights, in the order in which they are made."""

    def __init__(self, shape):
        self.shape = shape
        self.nodes = []
        self.weights = []
        self.random = np.random.default_rng(20261130)
        self.count = 0

    def weight(self, name, array):
        self.weights.append(onnx.numpy_helper.from_array(array, name))
        return name

    def op(self, kind, inputs, outputs=1, domain="", **attributes):
        self.count += 1
        names = [f"{kind}_{self.count}" + (f"_{i}" if i else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=names[0], domain=domain, **attributes))
        return names[0]

    def int4(self, name, rows, columns):
        """Random bytes, and scales with which a product keeps the size of its input."""
        packed = self.random.integers(1, 16, (rows, columns // BLOCK, BLOCK // 2), dtype=np.uint8)
        packed |= self.random.integers(1, 16, packed.shape, dtype=np.uint8) << 4
        # Uniform over 15 values about the middle, which is 8: a mean of 0 and a deviation of 4.3.
        scales = np.full((rows, columns // BLOCK), 1 / (4.3 * columns**0.5), np.float32)
        scales *= self.random.uniform(0.8, 1.2, scales.shape).astype(np.float32)
        return packed, scales

    def linear(self, x, name, rows, columns):
        packed, scales = self.int4(name, rows, columns)
        return self.op(
            "MatMulNBits",
            [x, self.weight(f"{name}.q", packed), self.weight(f"{name}.s", scales.reshape(-1))],
            domain=MICROSOFT,
            K=columns,
            N=rows,
            bits=4,
            block_size=BLOCK,
            accuracy_level=4,
        )

    def norm(self, x, name, width):
        ones = self.weight(name, np.ones(width, np.float32))
        return self.op("SimplifiedLayerNormalization", [x, ones], axis=-1, epsilon=1e-6)

    def head_norm(self, x, name, heads):
        """RMS norm of each head."""
        s = self.shape
        split = self.weight(f"{name}.split", np.array([0, 0, heads, s.head], np.int64))
        join = self.weight(f"{name}.join", np.array([0, 0, heads * s.head], np.int64))
        parted = self.op("Reshape", [x, split])
        return self.op("Reshape", [self.norm(parted, name, s.head), join])

    def rotary(self, name, theta):
        half = self.shape.head // 2
        angles = np.outer(np.arange(CONTEXT), theta ** (-np.arange(half) / half))
        return (
            self.weight(f"{name}.cos", np.cos(angles).astype(np.float32)),
            self.weight(f"{name}.sin", np.sin(angles).astype(np.float32)),
        )


def build(s):
    g = Graph(s)
    packed, scales = g.int4("embedding", s.vocabulary, s.hidden)
    # Unlike MatMulNBits it wants a row's blocks in one dimension. The rows are of about unit size.
    rows = g.weight("embedding.q", packed.reshape(s.vocabulary, -1))
    scales = g.weight("embedding.s", scales * np.float32(s.hidden**0.5))
    x = g.op("GatherBlockQuantized", [rows, "input_ids", scales], domain=MICROSOFT, gather_axis=0, quantize_axis=1, block_size=BLOCK, bits=4)
    if s.gemma:
        x = g.op("Mul", [x, g.weight("embedding.scale", np.float32(s.hidden**0.5))])
    one = g.weight("one", np.array([1], np.int64))
    last, end = g.weight("last", np.array([-1], np.int64)), g.weight("end", np.array([2**62], np.int64))
    length = g.op("Cast", [g.op("Gather", [g.op("Shape", ["input_ids"]), one])], to=TensorProto.INT32)
    before = g.op("Sub", [length, g.weight("one32", np.array([1], np.int32))])
    none = g.weight("past", np.zeros((1, s.kv_heads, 0, s.head), np.float32))
    wide, near = g.rotary("rotary", s.theta), g.rotary("rotary.local", 1e4) if s.gemma else None
    for i in range(s.layers):
        h = g.norm(x, f"{i}.attention.norm", s.hidden)
        q = g.head_norm(g.linear(h, f"{i}.q", s.heads * s.head, s.hidden), f"{i}.q.norm", s.heads)
        k = g.head_norm(g.linear(h, f"{i}.k", s.kv_heads * s.head, s.hidden), f"{i}.k.norm", s.kv_heads)
        v = g.linear(h, f"{i}.v", s.kv_heads * s.head, s.hidden)
        local = s.gemma and i % 6 != 5
        h = g.op(
            "GroupQueryAttention",
            [q, k, v, none, none, before, length, *(near if local else wide)],
            outputs=3,
            domain=MICROSOFT,
            num_heads=s.heads,
            kv_num_heads=s.kv_heads,
            do_rotary=1,
            scale=s.head**-0.5,
            local_window_size=s.window if local else -1,
        )
        h = g.linear(h, f"{i}.o", s.hidden, s.heads * s.head)
        if s.gemma:
            h = g.norm(h, f"{i}.attention.after", s.hidden)
        x = g.op("Add", [x, h])
        h = g.norm(x, f"{i}.ffn.norm", s.hidden)
        gate, up = (g.linear(h, f"{i}.{part}", s.ffn, s.hidden) for part in ("gate", "up"))
        if s.gemma:
            act = g.op("FastGelu", [gate], domain=MICROSOFT)
        else:
            act = g.op("Mul", [gate, g.op("Sigmoid", [gate])])
        h = g.linear(g.op("Mul", [act, up]), f"{i}.down", s.hidden, s.ffn)
        if s.gemma:
            h = g.norm(h, f"{i}.ffn.after", s.hidden)
        x = g.op("Add", [x, h])
    x = g.op("Slice", [x, last, end, one])
    g.norm(x, "norm", s.hidden)
    g.nodes[-1].output[0] = "hidden"
    graph = helper.make_graph(
        g.nodes,
        "shapes",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])],
        [helper.make_tensor_value_info("hidden", TensorProto.FLOAT, [1, 1, s.hidden])],
        g.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)], ir_version=10)


def check(file):
    """The model runs, and all of the prompt counts."""
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    ask = lambda ids: session.run(None, {"input_ids": np.array([ids], np.int64)})[0]
    a, b = ask(range(1, 41)), ask([7, *range(2, 41)])
    assert np.isfinite(a).all() and a.std() > 0.5, a
    assert not np.array_equal(a, b), "the first token has no part in the last one's state"


def main():
    name, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "model.onnx"
    file.unlink(missing_ok=True)
    (folder / "model.onnx_data").unlink(missing_ok=True)
    onnx.save(build(SHAPES[name]), file, save_as_external_data=True, location="model.onnx_data", size_threshold=1024)
    check(file)
    for part in (file, folder / "model.onnx_data"):
        print(part, part.stat().st_size)


main()
