//! Speed of one product, on every instruction set here in turn:
//! `cargo run --release -p zen-edge-kernels --example gemm -- [FORMAT [ROWS [COLS [TOKENS [ROUNDS [ISA …]]]]]]`.
//!
//! One thread. Prints medians in giga multiply-adds a second, activations' quantisation not counted, and the share of the
//! int8 limit of the set, which is measured right after each product: a shared machine's clock changes from one second to the next. The
//! sets run in turn within each round, so that what else the machine does falls on all of them.

use std::time::Instant;
use zen_edge_kernels::format::BlockType;
use zen_edge_kernels::gemm::{Activations, Input, Matrix, Product, matmul};
use zen_edge_kernels::isa::Isa;
use zen_edge_kernels::limits;
use zen_edge_kernels::pool::Pool;

/// Formats, and where a block's f16 scales stand.
const FORMATS: [(BlockType, &[usize]); 6] = [
    (BlockType::Q4_0, &[0]),
    (BlockType::Q5_0, &[0]),
    (BlockType::Q8_0, &[0]),
    (BlockType::Q4K, &[0, 2]),
    (BlockType::Q6K, &[208]),
    (BlockType::IQ4XS, &[0]),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "Q4_K".into());
    let mut number = |default: usize| args.next().map_or(Ok(default), |n| n.parse());
    let (rows, cols, tokens, rounds) = (number(3072)?, number(1024)?, number(128)?, number(9)?);
    let (ty, scales) =
        FORMATS.into_iter().find(|(ty, _)| ty.to_string() == name).ok_or("no such format in this list")?;
    let mut seed = 1u64;
    let mut byte = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    };
    let mut bytes: Vec<u8> =
        (0..ty.row_bytes(cols).ok_or("not whole blocks")? * rows).map(|_| byte()).collect();
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for &at in scales {
            block[at..at + 2].copy_from_slice(&half::f16::from_f32(0.01).to_le_bytes());
        }
    }
    let w = Matrix::new(ty, rows, cols, bytes.into())?;
    let x: Vec<f32> = (0..tokens * cols).map(|_| f32::from(byte()) / 128.0 - 1.0).collect();
    let pool = Pool::single();
    let mut out = vec![0.0f32; tokens * rows];
    let mut first: Option<Vec<u32>> = None;
    let mut isas = args.map(|name| Isa::from_name(&name)).collect::<Result<Vec<_>, _>>()?;
    if isas.is_empty() {
        isas = Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect();
    }
    let mut times = vec![Vec::new(); isas.len()];
    let mut shares = times.clone();
    let work = (rows * cols * tokens) as f64;
    for round in 0..=rounds {
        for ((isa, times), shares) in isas.iter().zip(&mut times).zip(&mut shares) {
            let mut q = Activations::new();
            q.quantize(*isa, &pool, &x, cols);
            let start = Instant::now();
            matmul(*isa, &pool, Input { x: &x, q: &q }, &mut [Product { w: &w, out: &mut out }]);
            // The first round warms caches, clocks and, in a browser's engine, the compiler.
            let seconds = start.elapsed().as_secs_f64();
            if round > 0 {
                times.push(seconds);
                let start = Instant::now();
                let limit = limits::int8(*isa, &pool, 2_000_000) as f64 / start.elapsed().as_secs_f64();
                shares.push(work / seconds / limit);
            }
            let bits: Vec<u32> = out.iter().map(|y| y.to_bits()).collect();
            assert!(*first.get_or_insert_with(|| bits.clone()) == bits, "{isa} gives other bits");
        }
    }
    println!("{ty}, {rows} rows x {cols} columns, {tokens} tokens, {rounds} rounds in turn, one thread");
    for ((isa, mut times), mut shares) in isas.into_iter().zip(times).zip(shares) {
        times.sort_by(f64::total_cmp);
        shares.sort_by(f64::total_cmp);
        let giga = work / 1e9;
        println!(
            "{isa:>14}  median {:6.1} G multiply-adds/s, best {:6.1}, {:3.0} % of the limit",
            giga / times[times.len() / 2],
            giga / times[0],
            100.0 * shares[shares.len() / 2],
        );
    }
    Ok(())
}
