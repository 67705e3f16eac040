//! Products with quantised weights: exact integer sums, floats in a fixed order.

use super::{Activations, BLOCK, Matrix, PANEL_ROWS};
use crate::format::decode::{Class, Format, Group};
use crate::isa::{Isa, Task, dispatch};
use crate::simd::{LANES, Simd, Tiles};
use core::marker::PhantomData;
use std::cell::RefCell;

/// Blocks of a panel that are unpacked at once: 1,024 columns, 16 KiB of quants.
const CHUNK: usize = 32;
/// Four-byte steps in a block.
const QUADS: usize = BLOCK / 4;

/// A panel's unpacked chunk. Rows are the inner index everywhere, 16 of them.
struct Panel {
    /// `[block][quad][row][4]`
    q: Vec<u8>,
    /// `[sub-block][row]`: the integer scale, twice, as the two 16-bit halves of a word.
    scale: Vec<i32>,
    /// `[sub-block][row]`
    min: Vec<f32>,
    /// `[group][row]`
    d: Vec<f32>,
    /// `[group][row]`
    dmin: Vec<f32>,
    /// What one group of the rows decodes to.
    groups: Vec<Group>,
}

thread_local! {
    static PANEL: RefCell<Panel> = const {
        RefCell::new(Panel { q: Vec::new(), scale: Vec::new(), min: Vec::new(), d: Vec::new(), dmin: Vec::new(), groups: Vec::new() })
    };
}

/// Multiplies the 16 rows from `row` with every token.
///
/// # Safety
/// `out` points at the panel's first column in `tokens` rows of `w.rows`, which nothing else writes meanwhile.
#[allow(unsafe_code)]
pub(super) unsafe fn panel_product<F: Format>(
    isa: Isa,
    w: &Matrix,
    x: &Activations,
    row: usize,
    tokens: usize,
    out: *mut f32,
) {
    let rows = PANEL_ROWS.min(w.rows - row);
    let blocks = w.cols / BLOCK;
    PANEL.with_borrow_mut(|panel| {
        panel.q.resize(CHUNK * BLOCK * PANEL_ROWS, 0);
        panel.scale.resize(2 * CHUNK * PANEL_ROWS, 0);
        panel.min.resize(2 * CHUNK * PANEL_ROWS, 0.0);
        panel.d.resize(CHUNK * PANEL_ROWS, 0.0);
        panel.dmin.resize(CHUNK * PANEL_ROWS, 0.0);
        panel.groups.resize_with(PANEL_ROWS, Group::new);
        for start in (0..blocks).step_by(CHUNK) {
            let len = CHUNK.min(blocks - start);
            dispatch(isa, Pack::<F> { w, row, rows, start, len, panel, format: PhantomData });
            let chunk = Chunk {
                panel,
                layout: Layout::of::<F>(),
                x,
                start,
                len,
                tokens,
                out,
                out_stride: w.rows,
                rows,
            };
            // The kernels differ by the range of the quants and by the sub-blocks of a block; all else is data, so that
            // formats share code.
            match (F::CLASS, F::SUB) {
                (Class::Signed, _) => dispatch(isa, Kernel::<0, 1>(chunk)),
                (Class::U4, BLOCK) => dispatch(isa, Kernel::<8, 1>(chunk)),
                (Class::U4, _) => dispatch(isa, Kernel::<4, 2>(chunk)),
                (Class::U5, _) => dispatch(isa, Kernel::<4, 1>(chunk)),
                (Class::U6, _) => dispatch(isa, Kernel::<2, 2>(chunk)),
            }
        }
    });
}

/// Unpacks blocks `start..start + len` of `rows` rows; rows that are not there become zeros.
struct Pack<'a, F> {
    w: &'a Matrix,
    row: usize,
    rows: usize,
    start: usize,
    len: usize,
    panel: &'a mut Panel,
    format: PhantomData<F>,
}

impl<F: Format> Task for Pack<'_, F> {
    type Output = ();

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(self) {
        let Self { w, row, rows, start, len, panel, .. } = self;
        let group_blocks = F::LEN / BLOCK;
        let subs = F::LEN / F::SUB;
        for group in &mut panel.groups[rows..] {
            *group = Group::new();
        }
        let size = F::TYPE.block_bytes();
        for g in 0..len / group_blocks {
            for (r, group) in panel.groups.iter_mut().enumerate().take(rows) {
                F::decode(&w.row(row + r)[(start / group_blocks + g) * size..][..size], group);
            }
            for (r, group) in panel.groups.iter().enumerate() {
                panel.d[g * PANEL_ROWS + r] = group.d;
                panel.dmin[g * PANEL_ROWS + r] = group.dmin;
            }
            for half in 0..2 {
                // Four scales or mins a lane; transposed, a lane a row.
                // SAFETY: scales and mins stand together, 32 bytes; the slices hold eight words.
                unsafe {
                    let mut lanes = [S::i_splat(0); LANES];
                    for (lane, group) in lanes.iter_mut().zip(&panel.groups[LANES * half..]) {
                        *lane = S::i_load((&raw const group.scale).cast());
                    }
                    let words = S::i_transpose(lanes);
                    for sub in 0..subs {
                        let byte = |word: usize| S::i_shl(words[word], 24 - 8 * (sub as u32 % 4));
                        let at = (g * subs + sub) * PANEL_ROWS + LANES * half;
                        let scale = S::i_sar(byte(sub / 4), 24);
                        let scale = S::i_blend16(scale, S::i_shl(scale, 16));
                        S::i_store(panel.scale[at..][..LANES].as_mut_ptr().cast(), scale);
                        if F::MIN {
                            // Mins are at most 63: their sign bit is clear.
                            let min = S::f_from_i(S::i_sar(byte(4 + sub / 4), 24));
                            S::f_store(panel.min[at..][..LANES].as_mut_ptr(), min);
                        }
                    }
                }
            }
            for b in 0..group_blocks {
                for half in 0..2 {
                    let groups = &panel.groups[LANES * half..][..LANES];
                    // SAFETY: 32 bytes of each row's quants; a block of the panel is eight quads of 64 bytes.
                    unsafe {
                        let mut lanes = [S::i_splat(0); LANES];
                        for (lane, group) in lanes.iter_mut().zip(groups) {
                            *lane = S::i_load(group.q[BLOCK * b..][..BLOCK].as_ptr());
                        }
                        let block =
                            &mut panel.q[(g * group_blocks + b) * BLOCK * PANEL_ROWS..][..BLOCK * PANEL_ROWS];
                        for (quad, lane) in S::i_transpose(lanes).into_iter().enumerate() {
                            S::i_store(
                                block[quad * 4 * PANEL_ROWS + BLOCK * half..][..BLOCK].as_mut_ptr(),
                                lane,
                            );
                        }
                    }
                }
            }
        }
    }
}

/// What a kernel must know of a format beside the range of its quants.
#[derive(Clone, Copy)]
struct Layout {
    group_blocks: usize,
    offset_shift: Option<u32>,
    min: bool,
}

impl Layout {
    const fn of<F: Format>() -> Self {
        Self { group_blocks: F::LEN / BLOCK, offset_shift: F::OFFSET_SHIFT, min: F::MIN }
    }
}

/// A panel's chunk and what it is multiplied with.
#[derive(Clone, Copy)]
struct Chunk<'a> {
    panel: &'a Panel,
    layout: Layout,
    x: &'a Activations,
    /// First block of the chunk, and how many.
    start: usize,
    len: usize,
    tokens: usize,
    out: *mut f32,
    out_stride: usize,
    rows: usize,
}

/// The kernel for quants of which `STEPS` products fit into 16 bits (0: signed bytes, straight to 32 bits), with `SUBS`
/// sub-blocks in a block.
struct Kernel<'a, const STEPS: usize, const SUBS: usize>(Chunk<'a>);

impl<const STEPS: usize, const SUBS: usize> Task for Kernel<'_, STEPS, SUBS> {
    type Output = ();

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the caller gives the instruction set; the chunk's pointers are valid as `panel_product` states.
        unsafe { S::tiles(self.0.tokens, &self) }
    }
}

impl<const STEPS: usize, const SUBS: usize> Tiles for Kernel<'_, STEPS, SUBS> {
    /// `out` must have `rows` columns in the row of every token.
    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn tile<S: Simd, const T: usize>(&self, first: usize) {
        let Chunk { out, out_stride, rows, .. } = self.0;
        // SAFETY: as the caller gives it; a partial row goes through a copy.
        unsafe {
            let out = out.add(first * out_stride);
            if rows == PANEL_ROWS {
                self.whole::<S, T>(first, out, out_stride);
                return;
            }
            let mut copy = [[0.0f32; PANEL_ROWS]; T];
            for (t, copy) in copy.iter_mut().enumerate() {
                core::ptr::copy_nonoverlapping(out.add(t * out_stride), copy.as_mut_ptr(), rows);
            }
            self.whole::<S, T>(first, copy.as_mut_ptr().cast(), PANEL_ROWS);
            for (t, copy) in copy.iter().enumerate() {
                core::ptr::copy_nonoverlapping(copy.as_ptr(), out.add(t * out_stride), rows);
            }
        }
    }
}

impl<const STEPS: usize, const SUBS: usize> Kernel<'_, STEPS, SUBS> {
    /// The chains of 16 rows × `T` tokens over the chunk's groups.
    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn whole<S: Simd, const T: usize>(&self, first: usize, out: *mut f32, out_stride: usize) {
        let Chunk { panel, layout, x, start, len, .. } = self.0;
        let blocks = x.cols() / BLOCK;
        let first = first * blocks + start;
        // SAFETY: the panel holds `len` blocks and their scales, the activations `blocks` of every token; `out` has 16
        // columns in each of `T` rows.
        unsafe {
            let q = x.q.as_ptr().add(first * BLOCK);
            let x_scale = x.scale.as_ptr().add(first);
            let x_sums = x.sums.as_ptr().add(first);
            let x_min = x.min.as_ptr().add(first);

            let mut acc = [[S::f_splat(0.0); T]; 2];
            if start > 0 {
                for (r, acc) in acc.iter_mut().enumerate() {
                    for (t, acc) in acc.iter_mut().enumerate() {
                        *acc = S::f_load(out.add(t * out_stride + LANES * r));
                    }
                }
            }
            for g in 0..len / layout.group_blocks {
                let group = g * layout.group_blocks..(g + 1) * layout.group_blocks;
                let mut s = [[S::f_splat(0.0); T]; 2];
                for b in group.clone() {
                    let w = panel.q.as_ptr().add(b * BLOCK * PANEL_ROWS);
                    let scale = panel.scale.as_ptr().add(b * SUBS * PANEL_ROWS);
                    let mut a = [q; T];
                    let mut sums = [0; T];
                    for t in 0..T {
                        a[t] = q.add((t * blocks + b) * BLOCK);
                        sums[t] = *x_sums.add(t * blocks + b);
                    }
                    let int = if STEPS == 0 {
                        signed_dot::<S, T>(w, scale, a, layout.group_blocks > 1)
                    } else {
                        unsigned_dot::<S, STEPS, SUBS, T>(w, scale, a, sums, layout.offset_shift)
                    };
                    for t in 0..T {
                        let x = S::f_splat(*x_scale.add(t * blocks + b));
                        for r in 0..2 {
                            s[r][t] = S::f_add(s[r][t], S::f_mul(int[r][t], x));
                        }
                    }
                }
                for r in 0..2 {
                    let d = S::f_load(panel.d.as_ptr().add(g * PANEL_ROWS + LANES * r));
                    for t in 0..T {
                        acc[r][t] = S::f_add(acc[r][t], S::f_mul(d, s[r][t]));
                    }
                }
                if !layout.min {
                    continue;
                }
                let mut m = [[S::f_splat(0.0); T]; 2];
                for b in group {
                    for sub in 0..SUBS {
                        let min = panel.min.as_ptr().add((b * SUBS + sub) * PANEL_ROWS);
                        let min = [S::f_load(min), S::f_load(min.add(LANES))];
                        for t in 0..T {
                            let at = t * blocks + b;
                            let x = if SUBS == 1 {
                                *x_min.add(at)
                            } else {
                                half_sum(*x_sums.add(at), sub) as f32 * *x_scale.add(at)
                            };
                            let x = S::f_splat(x);
                            for r in 0..2 {
                                m[r][t] = S::f_add(m[r][t], S::f_mul(min[r], x));
                            }
                        }
                    }
                }
                for r in 0..2 {
                    let dmin = S::f_load(panel.dmin.as_ptr().add(g * PANEL_ROWS + LANES * r));
                    for t in 0..T {
                        acc[r][t] = S::f_sub(acc[r][t], S::f_mul(dmin, m[r][t]));
                    }
                }
            }
            for (r, acc) in acc.into_iter().enumerate() {
                for (t, acc) in acc.into_iter().enumerate() {
                    S::f_store(out.add(t * out_stride + LANES * r), acc);
                }
            }
        }
    }
}

/// One of the two sums in a word of [`Activations::sums`].
#[inline(always)]
pub(super) fn half_sum(sums: i32, half: usize) -> i32 {
    if half == 0 { i32::from(sums as i16) } else { sums >> 16 }
}

/// One quad of a panel's block, and the same quad of a token's activations in every lane.
macro_rules! quad {
    ($S:ident, $w:expr, $i:expr) => {
        [$S::i_load($w.add(4 * PANEL_ROWS * $i)), $S::i_load($w.add(4 * PANEL_ROWS * $i + BLOCK))]
    };
    ($S:ident, splat $a:expr, $i:expr) => {
        $S::i_splat($a.add(4 * $i).cast::<i32>().read_unaligned())
    };
}

/// `float(int[b])` for 16 rows × `T` tokens, of signed bytes.
///
/// # Safety
/// `w` points at a block of a panel, `scale` at its scales, each of `a` at 32 activations.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn signed_dot<S: Simd, const T: usize>(
    w: *const u8,
    scale: *const i32,
    a: [*const i8; T],
    scaled: bool,
) -> [[S::F; T]; 2] {
    // SAFETY: as the caller gives it.
    unsafe {
        let mut int = [[S::i_splat(0); T]; 2];
        for i in 0..QUADS {
            let w = quad!(S, w, i);
            for t in 0..T {
                let a = quad!(S, splat a[t], i);
                for r in 0..2 {
                    int[r][t] = S::i_dot8(int[r][t], w[r], a);
                }
            }
        }
        let mut out = floats::<S, T>(int);
        if scaled {
            // |int| · |scale| < 2^24: the product of the floats is exact.
            for (r, out) in out.iter_mut().enumerate() {
                let scale = S::i_load(scale.add(LANES * r).cast());
                let scale = S::f_from_i(S::i_dot16(scale, S::i_splat(1)));
                for out in out {
                    *out = S::f_mul(*out, scale);
                }
            }
        }
        out
    }
}

/// `float(int[b])` for 16 rows × `T` tokens, of unsigned quants, `STEPS` quads at a time in 16 bits.
///
/// # Safety
/// `w` points at a block of a panel, `scale` at its sub-blocks' scales, each of `a` at 32 activations.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn unsigned_dot<S: Simd, const STEPS: usize, const SUBS: usize, const T: usize>(
    w: *const u8,
    scale: *const i32,
    a: [*const i8; T],
    sums: [i32; T],
    offset_shift: Option<u32>,
) -> [[S::F; T]; 2] {
    // SAFETY: as the caller gives it.
    unsafe {
        let mut int = [[S::i_splat(0); T]; 2];
        for at in (0..QUADS).step_by(STEPS) {
            let mut short = [[S::s_zero(); T]; 2];
            for i in at..at + STEPS {
                let w = quad!(S, w, i);
                for t in 0..T {
                    let a = quad!(S, splat a[t], i);
                    for r in 0..2 {
                        short[r][t] = S::s_dot(short[r][t], w[r], a);
                    }
                }
            }
            let scale = scale.add(at * SUBS / QUADS * PANEL_ROWS);
            for r in 0..2 {
                let scale = S::i_load(scale.add(LANES * r).cast());
                for t in 0..T {
                    let sum = S::s_widen(short[r][t], scale);
                    int[r][t] = if at == 0 { sum } else { S::i_add(int[r][t], sum) };
                }
            }
        }
        if let Some(shift) = offset_shift {
            for r in 0..2 {
                let low = S::i_load(scale.add(LANES * r).cast());
                let high = S::i_load(scale.add((SUBS - 1) * PANEL_ROWS + LANES * r).cast());
                let both = S::i_blend16(low, high);
                for t in 0..T {
                    let offset = S::i_shl(S::i_dot16(both, S::i_splat(sums[t])), shift);
                    int[r][t] = S::i_sub(int[r][t], offset);
                }
            }
        }
        floats::<S, T>(int)
    }
}

/// The floats of integers.
///
/// A loop, not `map`: closures that a library function calls are not compiled for the instruction set, and cost a call for
/// each vector (measured: ten times slower).
///
/// # Safety
/// The processor has the instruction set of `S`.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn floats<S: Simd, const T: usize>(int: [[S::I; T]; 2]) -> [[S::F; T]; 2] {
    // SAFETY: the caller gives the instruction set.
    unsafe {
        let mut out = [[S::f_splat(0.0); T]; 2];
        for r in 0..2 {
            for t in 0..T {
                out[r][t] = S::f_from_i(int[r][t]);
            }
        }
        out
    }
}
