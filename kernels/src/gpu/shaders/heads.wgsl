// The heads of queries or keys, in place: each normalised where the model does (NORM), rotated to its position, scaled.
//
// One workgroup a head of a token. D: length of a head. PAIRS: 0 turns (i, i + n/2), 1 turns (2i, 2i + 1). The table holds
// cosine and sine of `[position][pair]`.

struct Params { row: u32, stride: u32, pairs: u32, position: u32, eps: f32, scale: f32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> table: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read_write> x: array<f32>;

var<workgroup> head: array<f32, D>;
var<workgroup> partial: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let start = (p.row + group.y) * p.stride + group.x * D;
    var sum = 0.0;
    for (var i = t; i < D; i += 64u) {
        let v = x[start + i];
        head[i] = v;
        sum = fma(v, v, sum);
    }
    partial[t] = sum;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half >>= 1u) {
        if t < half {
            partial[t] += partial[t + half];
        }
        workgroupBarrier();
    }
    // Read whatever NORM says: a binding that a variant does not use would be missing from its layout.
    let norm = 1.0 / sqrt(partial[0] / f32(D) + p.eps);
    for (var i = t; i < D; i += 64u) {
        let w = weight[i * NORM];
        head[i] *= select(1.0, norm * w, NORM == 1u);
    }
    workgroupBarrier();
    let turns = (p.position + group.y) * p.pairs;
    for (var i = t; i < D; i += 64u) {
        var value = head[i];
        if i < 2u * p.pairs {
            let second = select(i >= p.pairs, (i & 1u) == 1u, PAIRS == 1u);
            let pair = select(select(i, i - p.pairs, second), i >> 1u, PAIRS == 1u);
            let distance = select(p.pairs, 1u, PAIRS == 1u);
            let turn = table[turns + pair];
            let other = head[select(i + distance, i - distance, second)];
            value = value * turn.x + select(-other, other, second) * turn.y;
        }
        x[start + i] = value * p.scale * FAULT;
    }
}
