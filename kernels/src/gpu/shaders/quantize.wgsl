// Activations rounded as the CPU's kernels round them: int8 in blocks of 32 with one scale each, and back to f32.
//
// The CPU multiplies int8 activations with integer weights; a product of the rounded values in f32 is the same up to the order of
// float sums. What the search does and why stands at `gemm::Activations`. One invocation a block.

struct Params { blocks: u32, x_block: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;

// 127 / 2^-100 would overflow.
const SMALLEST = 7.8886090522101181e-31;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let block = (group.y * groups.x + group.x) * 64u + t;
    if block >= p.blocks {
        return;
    }
    var v: array<vec4<f32>, 8>;
    var most = vec4<f32>(0.0);
    for (var i = 0u; i < 8u; i++) {
        v[i] = x[(p.x_block + block) * 8u + i];
        most = max(most, abs(v[i]));
    }
    let largest = max(max(most.x, most.y), max(most.z, most.w));
    if largest < SMALLEST {
        for (var i = 0u; i < 8u; i++) {
            out[block * 8u + i] = vec4<f32>(0.0);
        }
        return;
    }
    let inverse = 127.0 / largest;
    for (var i = 0u; i < 8u; i++) {
        v[i] *= inverse;
    }
    var ratios = array<f32, 8>(1.0035, 0.999, 0.9945, 0.99, 0.9855, 0.981, 0.9765, 0.972);
    var best = -1.0;
    var fit = 0.0;
    var ratio = ratios[0];
    for (var n = 0u; n < 8u; n++) {
        let r = ratios[n];
        var dots = vec4<f32>(0.0);
        var squares = vec4<f32>(0.0);
        for (var i = 0u; i < 8u; i++) {
            let q = round(v[i] * r);
            dots += v[i] * q;
            squares += q * q;
        }
        let dot_sum = (dots.x + dots.z) + (dots.y + dots.w);
        let square_sum = (squares.x + squares.z) + (squares.y + squares.w);
        let score = dot_sum * dot_sum / square_sum;
        if score > best {
            best = score;
            fit = dot_sum / square_sum;
            ratio = r;
        }
    }
    let scale = largest / 127.0 * fit * FAULT;
    for (var i = 0u; i < 8u; i++) {
        out[block * 8u + i] = round(v[i] * ratio) * scale;
    }
}
