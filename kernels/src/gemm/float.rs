//! Products with F32, F16 and BF16 weights, in f32.

use super::{Matrix, PANEL_ROWS};
use crate::format::decode::widen;
use crate::isa::{Isa, Task, dispatch};
use crate::simd::{LANES, Simd, TileSums, Tiles};
use std::cell::RefCell;

/// Columns of a panel that are unpacked at once: 32 KiB of f32.
const CHUNK: usize = 512;

thread_local! {
    /// A panel, `[column][16 rows]`.
    static PANEL: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Multiplies the 16 rows from `row` with every token.
///
/// # Safety
/// `out` points at the panel's first column in `tokens` rows of `w.rows`, which nothing else writes meanwhile.
#[allow(unsafe_code)]
pub(super) unsafe fn panel_product(
    isa: Isa,
    w: &Matrix,
    x: &[f32],
    row: usize,
    tokens: usize,
    out: *mut f32,
) {
    let rows = PANEL_ROWS.min(w.rows - row);
    PANEL.with_borrow_mut(|panel| {
        panel.resize(CHUNK * PANEL_ROWS, 0.0);
        for start in (0..w.cols).step_by(CHUNK) {
            let cols = CHUNK.min(w.cols - start);
            dispatch(isa, Pack { w, row, rows, start, cols, panel });
            let chains = Chains {
                w: panel.as_ptr(),
                w_stride: PANEL_ROWS,
                x: x[start..].as_ptr(),
                x_stride: w.cols,
                tokens,
                len: cols,
                out,
                out_stride: w.rows,
                lanes: rows,
                resume: start > 0,
            };
            dispatch(isa, chains);
        }
    });
}

/// Unpacks columns `start..start + cols` of `rows` rows into `[column][16]`; rows that are not there become zeros.
struct Pack<'a> {
    w: &'a Matrix,
    row: usize,
    rows: usize,
    start: usize,
    cols: usize,
    panel: &'a mut [f32],
}

impl Task for Pack<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(self) {
        let Self { w, row, rows, start, cols, panel } = self;
        let mut wide = [[0.0f32; LANES]; PANEL_ROWS];
        let size = w.ty.block_bytes();
        for col in (0..cols).step_by(LANES) {
            let width = LANES.min(cols - col);
            for (r, wide) in wide.iter_mut().enumerate().take(rows) {
                let bytes = &w.row(row + r)[(start + col) * size..][..width * size];
                widen(w.ty, bytes, &mut wide[..width]);
            }
            for half in 0..2 {
                // SAFETY: eight rows of eight floats; sixteen floats of each of `width` columns of the panel.
                unsafe {
                    let mut lanes = [S::i_splat(0); LANES];
                    for (lane, row) in lanes.iter_mut().zip(&wide[LANES * half..]) {
                        *lane = S::i_load(row.as_ptr().cast());
                    }
                    for (j, lane) in S::i_transpose(lanes).into_iter().enumerate().take(width) {
                        S::i_store(
                            panel[(col + j) * PANEL_ROWS + LANES * half..][..LANES].as_mut_ptr().cast(),
                            lane,
                        );
                    }
                }
            }
        }
    }
}

/// Float chains: `out[t][lane] (+)= Σ k: x[t][k] · w[k][lane]`, sixteen lanes, of which `lanes` are written.
#[derive(Clone, Copy)]
pub(crate) struct Chains {
    /// `[len][w_stride]`, 16 lanes read of each.
    pub w: *const f32,
    /// Floats from one `k` to the next.
    pub w_stride: usize,
    /// `[tokens][x_stride]`, `len` read of each.
    pub x: *const f32,
    /// Floats from one token to the next.
    pub x_stride: usize,
    /// Rows of `x` and of `out`.
    pub tokens: usize,
    /// Products in a chain.
    pub len: usize,
    /// `[tokens][out_stride]`.
    pub out: *mut f32,
    /// Floats from one token to the next.
    pub out_stride: usize,
    /// Lanes of an output row.
    pub lanes: usize,
    /// Whether the chains go on from what `out` holds.
    pub resume: bool,
}

impl Chains {
    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn whole<S: Simd, const T: usize>(&self, x: *const f32, out: *mut f32, out_stride: usize) {
        // SAFETY: the pointers are valid as the fields state; `out` has 16 lanes in each row.
        unsafe {
            let mut acc = [S::f16_splat(0.0); T];
            if self.resume {
                for (t, acc) in acc.iter_mut().enumerate() {
                    *acc = S::f16_load(out.add(t * out_stride));
                }
            }
            let mut w = self.w;
            for k in 0..self.len {
                let lanes = S::f16_load(w);
                for (t, acc) in acc.iter_mut().enumerate() {
                    let x = S::f16_splat(*x.add(t * self.x_stride + k));
                    *acc = S::f16_add(*acc, S::f16_mul(x, lanes));
                }
                w = w.add(self.w_stride);
            }
            for (t, acc) in acc.into_iter().enumerate() {
                S::f16_store(out.add(t * out_stride), acc);
            }
        }
    }
}

impl Task for Chains {
    type Output = ();

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the caller gives the instruction set and pointers that are valid as the fields state.
        unsafe { S::tiles(self.tokens, &self) }
    }
}

impl Tiles for Chains {
    /// The pointers must be valid as the fields state.
    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn tile<S: Simd, const T: usize>(&self, first: usize) {
        // SAFETY: as the caller gives it.
        unsafe {
            let x = self.x.add(first * self.x_stride);
            let out = self.out.add(first * self.out_stride);
            let mut sums = TileSums::<T>::of(out, self.out_stride, self.lanes);
            let (out, out_stride) = sums.place();
            self.whole::<S, T>(x, out, out_stride);
            sums.store();
        }
    }
}
