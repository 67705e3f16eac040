// What the device can do at most, measured: chains of multiply-adds in registers. 8 vectors of 4, ROUNDS times.

struct Params { seed: f32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var a: array<vec4<f32>, 8>;
    for (var i = 0u; i < 8u; i++) {
        a[i] = vec4<f32>(p.seed + f32(i + id.x));
    }
    let factor = vec4<f32>(p.seed);
    let term = vec4<f32>(p.seed * 0.5);
    for (var n = 0u; n < ROUNDS; n++) {
        a[0] = fma(a[0], factor, term);
        a[1] = fma(a[1], factor, term);
        a[2] = fma(a[2], factor, term);
        a[3] = fma(a[3], factor, term);
        a[4] = fma(a[4], factor, term);
        a[5] = fma(a[5], factor, term);
        a[6] = fma(a[6], factor, term);
        a[7] = fma(a[7], factor, term);
    }
    let sum = ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]));
    out[id.x] = (sum.x + sum.y) + (sum.z + sum.w);
}
