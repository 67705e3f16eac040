// Eight weights of a row, as the host packed them (`gpu::weights`), in f32.
//
// KIND: 0 four bits, 1 signed bytes, 2 f16, 3 bf16, 4 f32. GROUP: weights that share `d`; SUB: weights that share an integer
// scale, where GROUP is 256. OFFSET is subtracted from four-bit quants; MIN: 1 where sub-blocks have mins.
// A weight is `(d · scale) · (q − OFFSET) − dmin · min`, as in `format::decode`.

struct Eight { a: vec4<f32>, b: vec4<f32> }

// The value of an f16, subnormal or not: `unpack2x16float` may flush those, and scales of K-quants are small.
fn half_value(h: u32) -> f32 {
    let exponent = (h >> 10u) & 31u;
    let mantissa = h & 1023u;
    let wide = select(exponent + 112u, 255u, exponent == 31u);
    let normal = bitcast<f32>((wide << 23u) | (mantissa << 13u));
    let value = select(normal, f32(mantissa) * 5.9604644775390625e-8, exponent == 0u);
    return select(value, -value, (h & 0x8000u) != 0u);
}

fn halves(word: u32) -> vec2<f32> {
    if KIND == 2u {
        return vec2<f32>(half_value(word & 0xffffu), half_value(word >> 16u));
    }
    return vec2<f32>(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));
}

fn nibbles(word: u32) -> vec4<f32> {
    let q = vec4<u32>(word, word >> 4u, word >> 8u, word >> 12u) & vec4<u32>(15u);
    return vec4<f32>(vec4<i32>(q) - vec4<i32>(OFFSET));
}

fn signed_bytes(word: u32) -> vec4<f32> {
    let q = vec4<i32>(bitcast<vec4<i32>>(vec4<u32>(word << 24u, word << 16u, word << 8u, word))) >> vec4<u32>(24u);
    return vec4<f32>(q);
}

// Weights `8 · c .. 8 · c + 8` of block `kb` (of 32) of a row.
fn eight(kb: u32, row: u32, c: u32) -> Eight {
    let at = kb * p.n_pad + row;
    if KIND == 4u {
        let i = at * 32u + c * 8u;
        return Eight(
            vec4<f32>(bitcast<f32>(w[i]), bitcast<f32>(w[i + 1u]), bitcast<f32>(w[i + 2u]), bitcast<f32>(w[i + 3u])),
            vec4<f32>(bitcast<f32>(w[i + 4u]), bitcast<f32>(w[i + 5u]), bitcast<f32>(w[i + 6u]), bitcast<f32>(w[i + 7u])),
        );
    }
    if KIND >= 2u {
        let i = at * 16u + c * 4u;
        return Eight(
            vec4<f32>(halves(w[i]), halves(w[i + 1u])),
            vec4<f32>(halves(w[i + 2u]), halves(w[i + 3u])),
        );
    }
    var q: Eight;
    if KIND == 0u {
        let word = w[at * 4u + c];
        q = Eight(nibbles(word), nibbles(word >> 16u));
    } else {
        q = Eight(signed_bytes(w[at * 8u + c * 2u]), signed_bytes(w[at * 8u + c * 2u + 1u]));
    }
    var scale: f32;
    var low = 0.0;
    if GROUP == 32u {
        scale = bitcast<f32>(w[p.d + at]);
        if MIN == 1u {
            low = bitcast<f32>(w[p.dmin + at]);
        }
    } else {
        let group = (kb >> 3u) * p.n_pad + row;
        let ints = w[p.ints + at];
        let sub = select(0u, (c >> 1u) * 8u, SUB == 16u);
        scale = bitcast<f32>(w[p.d + group]) * f32(extractBits(bitcast<i32>(ints), sub, 8u));
        if MIN == 1u {
            low = bitcast<f32>(w[p.dmin + group]) * f32(extractBits(ints, 16u + sub, 8u));
        }
    }
    return Eight(scale * q.a - low, scale * q.b - low);
}
