// Causal attention with grouped queries, in blocks of 32 keys with a running maximum: no T × T matrix exists.
//
// The queries of all heads that share a KV head are rows: row `token · group + head in group`. A workgroup takes 32 rows of one KV
// head. D: length of a head, a multiple of 16. Queries come rotated and scaled. A token at position `p` sees the keys
// `max(0, p + 1 − window) ..= p`.

struct Params { rows: u32, group: u32, heads: u32, kv_heads: u32, position: u32, window: u32, q_row: u32, out_row: u32, tile: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> keys: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> values: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

const D4 = D / 4u;
const COLS = D / 16u;

var<workgroup> qs: array<vec4<f32>, 256>;
var<workgroup> ks: array<vec4<f32>, 256>;
// `[row][key]`, 33 apart.
var<workgroup> scores: array<f32, 1056>;
var<workgroup> most: array<f32, 32>;
var<workgroup> sums: array<f32, 32>;
var<workgroup> fade: array<f32, 32>;

fn dot4(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row0 = (p.tile + wg.x) * 32u;
    let kv_head = wg.y;
    let tx = t & 15u;
    let ty = t >> 4u;
    let last_row = min(row0 + 31u, p.rows - 1u);
    let last = p.position + last_row / p.group;
    let first_position = p.position + row0 / p.group;
    let first = select(0u, first_position + 1u - p.window, first_position + 1u > p.window) / 32u;
    if t < 32u {
        most[t] = -1e30;
        sums[t] = 0.0;
    }
    var acc0: array<f32, COLS>;
    var acc1: array<f32, COLS>;
    for (var j = 0u; j < COLS; j++) {
        acc0[j] = 0.0;
        acc1[j] = 0.0;
    }
    let load_row = t >> 3u;
    let load_col = t & 7u;
    let q_row = min(row0 + load_row, p.rows - 1u);
    let q_at = ((p.q_row + q_row / p.group) * p.heads + kv_head * p.group + q_row % p.group) * D4;
    for (var block = first; block <= last / 32u; block++) {
        let key_at = (min(block * 32u + load_row, last) * p.kv_heads + kv_head) * D4;
        var s00 = 0.0;
        var s01 = 0.0;
        var s10 = 0.0;
        var s11 = 0.0;
        for (var c0 = 0u; c0 < D4; c0 += 8u) {
            let col = load_col ^ (load_row & 7u);
            let inside = c0 + load_col < D4;
            let c = min(c0 + load_col, D4 - 1u);
            qs[load_row * 8u + col] = select(vec4<f32>(0.0), q[q_at + c], inside);
            ks[load_row * 8u + col] = select(vec4<f32>(0.0), keys[key_at + c], inside);
            workgroupBarrier();
            for (var c = 0u; c < 8u; c++) {
                let a0 = qs[ty * 8u + (c ^ (ty & 7u))];
                let a1 = qs[(ty + 16u) * 8u + (c ^ (ty & 7u))];
                let b0 = ks[tx * 8u + (c ^ (tx & 7u))];
                let b1 = ks[(tx + 16u) * 8u + (c ^ (tx & 7u))];
                s00 = dot4(a0, b0, s00);
                s01 = dot4(a0, b1, s01);
                s10 = dot4(a1, b0, s10);
                s11 = dot4(a1, b1, s11);
            }
            workgroupBarrier();
        }
        scores[ty * 33u + tx] = s00;
        scores[ty * 33u + tx + 16u] = s01;
        scores[(ty + 16u) * 33u + tx] = s10;
        scores[(ty + 16u) * 33u + tx + 16u] = s11;
        workgroupBarrier();
        if t < 32u {
            let position = p.position + min(row0 + t, p.rows - 1u) / p.group;
            var largest = most[t];
            let before = largest;
            for (var k = 0u; k < 32u; k++) {
                let key = block * 32u + k;
                if key <= position && key + p.window > position {
                    largest = max(largest, scores[t * 33u + k]);
                }
            }
            let factor = exp(before - largest);
            var sum = sums[t] * factor;
            for (var k = 0u; k < 32u; k++) {
                let key = block * 32u + k;
                let seen = key <= position && key + p.window > position;
                let e = select(0.0, exp(scores[t * 33u + k] - largest), seen);
                scores[t * 33u + k] = e;
                sum += e;
            }
            most[t] = largest;
            sums[t] = sum;
            fade[t] = factor;
        }
        workgroupBarrier();
        let fade0 = fade[ty];
        let fade1 = fade[ty + 16u];
        for (var j = 0u; j < COLS; j++) {
            acc0[j] *= fade0;
            acc1[j] *= fade1;
        }
        let seen = min(32u, last + 1u - block * 32u);
        for (var k = 0u; k < seen; k++) {
            let at = ((block * 32u + k) * p.kv_heads + kv_head) * D + tx;
            let e0 = scores[ty * 33u + k];
            let e1 = scores[(ty + 16u) * 33u + k];
            for (var j = 0u; j < COLS; j++) {
                let v = values[at + 16u * j];
                acc0[j] = fma(e0, v, acc0[j]);
                acc1[j] = fma(e1, v, acc1[j]);
            }
        }
        workgroupBarrier();
    }
    for (var half = 0u; half < 2u; half++) {
        let row = row0 + ty + 16u * half;
        if row < p.rows {
            let inverse = FAULT / sums[ty + 16u * half];
            let at = ((p.out_row + row / p.group) * p.heads + kv_head * p.group + row % p.group) * D + tx;
            for (var j = 0u; j < COLS; j++) {
                out[at + 16u * j] = select(acc0[j], acc1[j], half == 1u) * inverse;
            }
        }
    }
}
