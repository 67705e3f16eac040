//! Products with quantised weights: exact integer sums, floats in a fixed order.

use super::dot::{Dot, Layout};
use super::lanes::{self, Parts};
use super::{Activations, BLOCK, Matrix, PANEL_ROWS};
use crate::format::decode::{Class, Format, Group};
use crate::isa::{Isa, Task, dispatch};
use crate::memory::Lines;
use crate::simd::{LANES, Simd, TileSums, Tiles};
use core::marker::PhantomData;
use std::cell::RefCell;

/// Blocks of a panel that are unpacked at once: 1,024 columns, 16 KiB of quants where they are bytes.
const CHUNK: usize = 32;

/// A panel's unpacked chunk. Rows are the inner index everywhere, 16 of them. Everything begins with a line of the cache: a vector of 64 bytes
/// that lies in two of them is read twice.
struct Panel {
    /// `[block][…]`, as the [`Dot`] of the instruction set writes a block.
    q: Lines<u8>,
    /// `[sub-block][row]`: the integer scale, twice, as the two 16-bit halves of a word.
    scale: Lines<i32>,
    /// `[sub-block][row]`
    min: Lines<f32>,
    /// `[group][row]`
    d: Lines<f32>,
    /// `[group][row]`
    dmin: Lines<f32>,
    /// What one group of the rows decodes to.
    groups: Vec<Group>,
}

thread_local! {
    static PANEL: RefCell<Panel> = const {
        RefCell::new(Panel { q: Lines::new(), scale: Lines::new(), min: Lines::new(), d: Lines::new(), dmin: Lines::new(), groups: Vec::new() })
    };
}

/// Multiplies the 16 rows from `row` with every token. Meanwhile it asks for what is unpacked next: the panel's next columns, at last the
/// first ones of the panel that lies `ahead` panels on.
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
    ahead: usize,
) {
    let rows = PANEL_ROWS.min(w.rows - row);
    let blocks = w.cols / BLOCK;
    let group_blocks = F::LEN / BLOCK;
    PANEL.with_borrow_mut(|panel| {
        // The first-level cache holds it, whatever the width.
        let chunk = if F::CLASS == Class::Signed { isa.signed_words() } else { isa.unsigned_words() };
        let chunk = if chunk { CHUNK / 2 } else { CHUNK };
        panel.q.resize(CHUNK * BLOCK * PANEL_ROWS);
        panel.scale.resize(2 * CHUNK * PANEL_ROWS);
        panel.min.resize(2 * CHUNK * PANEL_ROWS);
        panel.d.resize(CHUNK * PANEL_ROWS);
        panel.dmin.resize(CHUNK * PANEL_ROWS);
        panel.groups.resize_with(PANEL_ROWS, Group::new);
        for start in (0..blocks).step_by(chunk) {
            let len = chunk.min(blocks - start);
            dispatch(isa, Pack::<F> { w, row, rows, start, len, panel, format: PhantomData });
            let (next_row, next) =
                if start + len < blocks { (row, start + len) } else { (row + ahead * PANEL_ROWS, 0) };
            let mut next_rows = [core::ptr::null(); PANEL_ROWS];
            for (r, pointer) in (next_row..w.rows).zip(&mut next_rows) {
                *pointer = w.row(r)[next / group_blocks * F::TYPE.block_bytes()..].as_ptr();
            }
            let chunk = Chunk {
                next_rows,
                next_bytes: chunk.min(blocks - next) / group_blocks * F::TYPE.block_bytes(),
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
        let flip = if F::CLASS == Class::Signed { S::Signed::QUADS } else { S::Unsigned::QUADS };
        if let (true, Some(flip)) = (lanes::knows(F::TYPE), flip) {
            // SAFETY: the caller gives the instruction set, and the panel's blocks are what `QUADS` says.
            unsafe { self.by_lanes::<S>(if F::CLASS == Class::Signed { flip } else { 0 }) }
            return;
        }
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
            // SAFETY: the caller gives the instruction set.
            unsafe {
                if F::CLASS == Class::Signed {
                    pack_group::<S, S::Signed, F>(&panel.groups, g * group_blocks, &mut panel.q);
                } else {
                    pack_group::<S, S::Unsigned, F>(&panel.groups, g * group_blocks, &mut panel.q);
                }
            }
        }
    }
}

impl<F: Format> Pack<'_, F> {
    /// Eight rows at once, from the file's own words. Rows that are not there become the first one once more: their results are
    /// not kept.
    ///
    /// # Safety
    /// The processor has the instruction set of `S`; a panel's block is `[quad][row][4]` bytes.
    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn by_lanes<S: Simd>(self, flip: u8) {
        let Self { w, row, rows, start, len, panel, .. } = self;
        let group_blocks = F::LEN / BLOCK;
        let subs = F::LEN / F::SUB;
        let size = F::TYPE.block_bytes();
        let mut pointers = [w.row(row)[start / group_blocks * size..].as_ptr(); PANEL_ROWS];
        for (r, pointer) in pointers.iter_mut().enumerate().take(rows) {
            *pointer = w.row(row + r)[start / group_blocks * size..].as_ptr();
        }
        for half in 0..2 {
            let mut rows = [pointers[0]; LANES];
            rows.copy_from_slice(&pointers[LANES * half..][..LANES]);
            for g in 0..len / group_blocks {
                let at = g * PANEL_ROWS + LANES * half;
                let sub = g * subs * PANEL_ROWS + LANES * half;
                let q = g * group_blocks * BLOCK * PANEL_ROWS + 4 * LANES * half;
                assert!(
                    at + LANES <= panel.d.len() && sub + (subs - 1) * PANEL_ROWS + LANES <= panel.scale.len()
                );
                assert!(q + (group_blocks * BLOCK - 4) * PANEL_ROWS + 4 * LANES <= panel.q.len());
                // SAFETY: `len / group_blocks` blocks of each row follow; the parts have room, as was just seen (mins and scales
                // have one length, and so have `d` and `dmin`).
                unsafe {
                    let mut parts = Parts {
                        q: panel.q.as_mut_ptr().add(q),
                        scale: panel.scale.as_mut_ptr().add(sub),
                        min: panel.min.as_mut_ptr().add(sub),
                        d: panel.d.as_mut_ptr().add(at),
                        dmin: panel.dmin.as_mut_ptr().add(at),
                        flip,
                    };
                    lanes::unpack::<S, Parts>(F::TYPE, &rows, &mut parts);
                    for row in &mut rows {
                        *row = row.add(size);
                    }
                }
            }
        }
    }
}

/// Writes the blocks of 16 rows' groups, from block `first` of the panel on.
///
/// # Safety
/// The processor has the instruction set of `S`.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn pack_group<S: Simd, D: Dot<S>, F: Format>(groups: &[Group], first: usize, q: &mut [u8]) {
    let size = BLOCK * PANEL_ROWS * D::WIDTH;
    for b in 0..F::LEN / BLOCK {
        let block = &mut q[(first + b) * size..][..size];
        for half in 0..2 {
            // SAFETY: the caller gives the instruction set.
            unsafe { D::pack::<F>(&groups[LANES * half..][..LANES], b, half, block) }
        }
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
    /// What is unpacked next: that many bytes of each of these rows, null where there is none.
    next_rows: [*const u8; PANEL_ROWS],
    next_bytes: usize,
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
        let Chunk { out, out_stride, rows, tokens, next_rows, next_bytes, .. } = self.0;
        // Each tile asks for its share of the next rows.
        for row in &next_rows[first * PANEL_ROWS / tokens..(first + T) * PANEL_ROWS / tokens] {
            for line in (0..if row.is_null() { 0 } else { next_bytes }).step_by(64) {
                // SAFETY: the caller gives the instruction set; a hint reads nothing.
                unsafe { S::prefetch(row.wrapping_add(line)) }
            }
        }
        // And for the lines that the next tile writes: to fetch them takes about as long as a tile.
        for token in first + T..(first + 2 * T).min(tokens) {
            let line = out.wrapping_add(token * out_stride).cast::<u8>();
            // SAFETY: as above.
            unsafe { S::prefetch(line) }
        }
        // SAFETY: as the caller gives it.
        unsafe {
            let mut sums = TileSums::<T>::of(out.add(first * out_stride), out_stride, rows);
            let (out, out_stride) = sums.place();
            if STEPS == 0 {
                self.whole::<S, S::Signed, T>(first, out, out_stride);
            } else {
                self.whole::<S, S::Unsigned, T>(first, out, out_stride);
            }
            sums.store();
        }
    }
}

impl<const STEPS: usize, const SUBS: usize> Kernel<'_, STEPS, SUBS> {
    /// The chains of 16 rows × `T` tokens over the chunk's groups.
    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn whole<S: Simd, D: Dot<S>, const T: usize>(
        &self,
        first: usize,
        out: *mut f32,
        out_stride: usize,
    ) {
        let Chunk { panel, layout, x, start, len, .. } = self.0;
        let blocks = x.cols() / BLOCK;
        // SAFETY: the panel holds `len` blocks and their scales, the activations `blocks` of every token; `out` has 16
        // columns in each of `T` rows.
        unsafe {
            let q = D::activations(x).add((first * blocks + start) * BLOCK);
            // `[block][token]`, from the chunk's first block and the tile's first token on.
            let tokens = x.tokens();
            let x_scale = x.scale.as_ptr().add(start * tokens + first);
            let x_sums = x.sums.as_ptr().add(start * tokens + first);
            let x_min = x.min.as_ptr().add(start * tokens + first);

            let mut acc = [S::f16_splat(0.0); T];
            if start > 0 {
                for (t, acc) in acc.iter_mut().enumerate() {
                    *acc = S::f16_load(out.add(t * out_stride));
                }
            }
            for g in 0..len / layout.group_blocks {
                let group = g * layout.group_blocks..(g + 1) * layout.group_blocks;
                let mut s = [S::f16_splat(0.0); T];
                for b in group.clone() {
                    let w = panel.q.as_ptr().add(b * BLOCK * PANEL_ROWS * D::WIDTH);
                    let scale = panel.scale.as_ptr().add(b * SUBS * PANEL_ROWS);
                    let mut a = [q; T];
                    let mut sums = [0; T];
                    for t in 0..T {
                        a[t] = q.add((t * blocks + b) * BLOCK);
                        sums[t] = *x_sums.add(b * tokens + t);
                    }
                    let int = D::block::<STEPS, SUBS, T>(w, scale, a, sums, layout);
                    for t in 0..T {
                        let x = S::f16_splat(*x_scale.add(b * tokens + t));
                        s[t] = S::f16_add(s[t], S::f16_mul(int[t], x));
                    }
                }
                let d = S::f16_load(panel.d.as_ptr().add(g * PANEL_ROWS));
                for t in 0..T {
                    acc[t] = S::f16_add(acc[t], S::f16_mul(d, s[t]));
                }
                if !layout.min {
                    continue;
                }
                let mut m = [S::f16_splat(0.0); T];
                for b in group {
                    for sub in 0..SUBS {
                        let min = S::f16_load(panel.min.as_ptr().add((b * SUBS + sub) * PANEL_ROWS));
                        for t in 0..T {
                            let at = b * tokens + t;
                            let x = if SUBS == 1 {
                                *x_min.add(at)
                            } else {
                                half_sum(*x_sums.add(at), sub) as f32 * *x_scale.add(at)
                            };
                            m[t] = S::f16_add(m[t], S::f16_mul(min, S::f16_splat(x)));
                        }
                    }
                }
                let dmin = S::f16_load(panel.dmin.as_ptr().add(g * PANEL_ROWS));
                for t in 0..T {
                    acc[t] = S::f16_sub(acc[t], S::f16_mul(dmin, m[t]));
                }
            }
            for (t, acc) in acc.into_iter().enumerate() {
                S::f16_store(out.add(t * out_stride), acc);
            }
        }
    }
}

/// One of the two sums in a word of [`Activations::sums`].
#[inline(always)]
pub(super) fn half_sum(sums: i32, half: usize) -> i32 {
    if half == 0 { i32::from(sums as i16) } else { sums >> 16 }
}
