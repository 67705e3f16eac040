// `out = f(gate) · up`, element by element. ACTIVATION: 0 SiLU, 1 GELU (tanh form).

struct Params { vectors: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> gate: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> up: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let i = (group.y * groups.x + group.x) * 256u + t;
    if i >= p.vectors {
        return;
    }
    let x = gate[i];
    var exponent = -x;
    if ACTIVATION == 1u {
        exponent = -1.5957692 * (x + 0.044715 * (x * x * x));
    }
    // Beyond 88 e^x overflows; what is divided by it is zero to f32 long before.
    let e = exp(clamp(exponent, vec4<f32>(-87.0), vec4<f32>(88.0)));
    out[i] = x / (1.0 + e) * up[i] * FAULT;
}
