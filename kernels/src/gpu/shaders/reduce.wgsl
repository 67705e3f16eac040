var<workgroup> partial: array<f32, 256>;

// The sum of a value over the 256 invocations of a workgroup.
fn reduce(t: u32, value: f32) -> f32 {
    partial[t] = value;
    workgroupBarrier();
    for (var half = 128u; half > 0u; half >>= 1u) {
        if t < half {
            partial[t] += partial[t + half];
        }
        workgroupBarrier();
    }
    return partial[0];
}
