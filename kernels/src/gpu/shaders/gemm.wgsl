// Weights × activations: `out[m][n] = Σ k: x[m][k] · w[n][k]`, the weights unpacked into the tile.
//
// A workgroup of 16 × 16 computes a tile of 16·TM tokens × 64 rows, 32 columns at a time; an invocation has TM × 4 of it. Tiles lie
// in workgroup memory as `[row][8 × vec4]`, the column exclusive-ored with the row so that neighbours hit different banks: padding
// would go beyond the 16 KiB that WebGPU promises. TM is 1, 2 or 4. A long product is cut by
// its rows into several dispatches, of which `tile` is the first tile. ADD: 0 stores, 1 adds to what `out` holds.

struct Params {
    m: u32, n: u32, k: u32, n_pad: u32,
    x_row: u32, out_row: u32, out_stride: u32, out_col: u32,
    ints: u32, d: u32, dmin: u32, tile: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> w: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

#import decode

const TOKENS = 16u * TM;
var<workgroup> xs: array<vec4<f32>, TOKENS * 8u>;
var<workgroup> ws: array<vec4<f32>, 512>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let n0 = (p.tile + group.x) * 64u;
    let m0 = group.y * TOKENS;
    let tx = t & 15u;
    let ty = t >> 4u;
    let k4 = p.k >> 2u;
    var acc: array<vec4<f32>, TM>;
    for (var i = 0u; i < TM; i++) {
        acc[i] = vec4<f32>(0.0);
    }
    let w_row = t >> 2u;
    let w_col = t & 3u;
    for (var kb = 0u; kb < (p.k >> 5u); kb++) {
        for (var i = t; i < TOKENS * 8u; i += 256u) {
            let row = i >> 3u;
            let col = i & 7u;
            let token = min(m0 + row, p.m - 1u);
            xs[row * 8u + (col ^ (row & 7u))] = x[(p.x_row + token) * k4 + kb * 8u + col];
        }
        let weights = eight(kb, n0 + w_row, w_col);
        ws[w_row * 8u + ((2u * w_col) ^ (w_row & 7u))] = weights.a;
        ws[w_row * 8u + ((2u * w_col + 1u) ^ (w_row & 7u))] = weights.b;
        workgroupBarrier();
        for (var c = 0u; c < 8u; c++) {
            // Rows tx, tx + 16, tx + 32, tx + 48: the same bits below eight.
            let col = c ^ (tx & 7u);
            let b0 = ws[tx * 8u + col];
            let b1 = ws[(tx + 16u) * 8u + col];
            let b2 = ws[(tx + 32u) * 8u + col];
            let b3 = ws[(tx + 48u) * 8u + col];
            let bx = vec4<f32>(b0.x, b1.x, b2.x, b3.x);
            let by = vec4<f32>(b0.y, b1.y, b2.y, b3.y);
            let bz = vec4<f32>(b0.z, b1.z, b2.z, b3.z);
            let bw = vec4<f32>(b0.w, b1.w, b2.w, b3.w);
            for (var i = 0u; i < TM; i++) {
                let row = ty * TM + i;
                let a = xs[row * 8u + (c ^ (row & 7u))];
                var sum = acc[i];
                sum = fma(vec4<f32>(a.x), bx, sum);
                sum = fma(vec4<f32>(a.y), by, sum);
                sum = fma(vec4<f32>(a.z), bz, sum);
                sum = fma(vec4<f32>(a.w), bw, sum);
                acc[i] = sum;
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < TM; i++) {
        let m = m0 + ty * TM + i;
        for (var j = 0u; j < 4u; j++) {
            let n = n0 + tx + 16u * j;
            if m < p.m && n < p.n {
                let at = (p.out_row + m) * p.out_stride + p.out_col + n;
                let value = acc[i][j] * FAULT;
                if ADD == 1u {
                    out[at] += value;
                } else {
                    out[at] = value;
                }
            }
        }
    }
}
