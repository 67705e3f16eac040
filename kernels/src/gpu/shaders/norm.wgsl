// Root-mean-square normalisation of rows, one workgroup a row: `out = x · 1/√(mean(x²) + eps) · weight`.
//
// ADD: 0 stores, 1 adds to what `out` holds.

struct Params { cols: u32, x_row: u32, out_row: u32, eps: f32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

#import reduce

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let source = (p.x_row + group.x) * p.cols;
    let target_ = (p.out_row + group.x) * p.cols;
    var sum = 0.0;
    for (var i = t; i < p.cols; i += 256u) {
        let v = x[source + i];
        sum = fma(v, v, sum);
    }
    let total = reduce(t, sum);
    let scale = 1.0 / sqrt(total / f32(p.cols) + p.eps);
    for (var i = t; i < p.cols; i += 256u) {
        let v = x[source + i] * scale * weight[i] * FAULT;
        if ADD == 1u {
            out[target_ + i] += v;
        } else {
            out[target_ + i] = v;
        }
    }
}
