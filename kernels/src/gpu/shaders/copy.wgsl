// Memory to memory, 16 bytes an invocation: what the device can move at most.

struct Params { vectors: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> from_: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let i = (group.y * groups.x + group.x) * 256u + t;
    if i < p.vectors {
        out[i] = from_[i];
    }
}
