//! On whatever adapter there is, software too; without one each test says that it is skipped.

use super::proof;
use super::*;
use crate::format::BlockType;
use crate::ops::RopePairs;
use std::sync::Arc;
use std::time::Instant;

fn options() -> GpuOptions {
    let start = Instant::now();
    GpuOptions { software: true, now: Some(Arc::new(move || start.elapsed())), ..GpuOptions::default() }
}

/// A device, or the word that there is none. With `ZEN_EDGE_NO_SKIP=1` there must be one.
fn device(test: &str, options: &GpuOptions) -> Option<Gpu> {
    match block_on(Gpu::open(options)) {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            let may = std::env::var("ZEN_EDGE_MAY_SKIP")
                .is_ok_and(|names| names.split(',').any(|name| name == test));
            assert!(
                may || std::env::var("ZEN_EDGE_NO_SKIP").as_deref() != Ok("1"),
                "{test} may not be skipped: {error}"
            );
            eprintln!("SKIPPED {test}: {error}");
            None
        }
    }
}

fn passes(line: Result<Line, GpuError>) {
    let line = line.expect("the device answers");
    assert!(line.passed(), "{line:?}");
}

#[test]
fn products_of_every_format_and_length_are_the_cpus() {
    let Some(gpu) = device("products_of_every_format_and_length_are_the_cpus", &options()) else { return };
    block_on(async {
        for ty in BlockType::ALL {
            for m in [1, 16, 63, 64, 65] {
                passes(proof::gemm(&gpu, ty, m, 77, 256, m == 63).await);
            }
        }
        for ty in
            [BlockType::Q4K, BlockType::Q6K, BlockType::Q8_0, BlockType::Q4_0, BlockType::F16, BlockType::F32]
        {
            for m in [499, 512] {
                passes(proof::gemm(&gpu, ty, m, 65, 256, m == 499).await);
            }
        }
    });
}

#[test]
fn a_matrix_in_several_parts_gives_the_same() {
    let Some(gpu) = device("a_matrix_in_several_parts_gives_the_same", &options()) else { return };
    for ty in [BlockType::Q4K, BlockType::Q6K, BlockType::F16] {
        // Parts of one tile of 64 rows: four of them, the last one of 7 rows.
        passes(block_on(proof::gemm_in(&gpu, ty, 20, 199, 512, false, 1)));
    }
}

#[test]
fn the_other_kernels_are_the_cpus() {
    let Some(gpu) = device("the_other_kernels_are_the_cpus", &options()) else { return };
    block_on(async {
        for d in [16, 48, 64, 128, 256] {
            for (tokens, position, heads, kv_heads, window) in [
                (1, 0, 2, 1, None),
                (1, 70, 4, 2, None),
                (70, 0, 9, 3, None),
                (33, 31, 4, 4, Some(1)),
                (65, 64, 4, 1, Some(40)),
            ] {
                passes(
                    proof::attend(&gpu, tokens, position, &Heads { heads, kv_heads, head_dim: d, window })
                        .await,
                );
            }
            for order in [RopePairs::Halves, RopePairs::Neighbours] {
                passes(proof::heads(&gpu, 3, 4, d, order, d != 48).await);
            }
        }
    });
}

#[test]
fn the_proof_passes_and_finds_a_fault_in_any_kernel() {
    let name = "the_proof_passes_and_finds_a_fault_in_any_kernel";
    let Some(gpu) = device(name, &options()) else { return };
    let lines = block_on(prove(&gpu, &[BlockType::Q4K, BlockType::Q6K], 64)).unwrap();
    assert!(lines.iter().all(Line::passed));
    let proved = [Kernel::Echo, Kernel::Norm, Kernel::Gemm, Kernel::Heads, Kernel::Attention, Kernel::Gate];
    for kernel in proved {
        assert!(lines.iter().any(|line| line.kernel == kernel), "{kernel:?} is proved");
        let faults = Faults { wrong: Some(kernel), ..Faults::default() };
        let Some(gpu) = device(name, &GpuOptions { faults, ..options() }) else { return };
        match block_on(prove(&gpu, &[BlockType::Q4K], 64)) {
            Err(GpuError::Wrong { kernel: found, .. }) => assert_eq!(found, kernel.name()),
            other => panic!("{kernel:?}: {other:?}"),
        }
    }
}

#[test]
fn a_lost_device_is_an_error_and_no_panic() {
    let faults = Faults { losses: Arc::new(1.into()), ..Faults::default() };
    let Some(gpu) =
        device("a_lost_device_is_an_error_and_no_panic", &GpuOptions { faults: faults.clone(), ..options() })
    else {
        return;
    };
    let lost = block_on(prove(&gpu, &[BlockType::Q4K], 64));
    assert!(matches!(lost, Err(GpuError::Lost(_) | GpuError::Device(_))), "{lost:?}");
    assert!(gpu.check().is_err());
    // The next one lives.
    let Some(gpu) = device("a_lost_device_is_an_error_and_no_panic", &GpuOptions { faults, ..options() })
    else {
        return;
    };
    block_on(prove(&gpu, &[BlockType::Q4K], 64)).unwrap();
}

#[test]
fn what_is_larger_than_a_binding_is_refused_and_so_is_memory_that_is_not_there() {
    let name = "what_is_larger_than_a_binding_is_refused_and_so_is_memory_that_is_not_there";
    let faults = Faults { no_memory: true, ..Faults::default() };
    let Some(gpu) = device(name, &GpuOptions { faults, ..options() }) else { return };
    let size = usize::try_from(gpu.binding_limit() / 4 + 4).unwrap();
    let refused = block_on(gpu.buffer(size)).map(|_| ());
    assert!(matches!(refused, Err(GpuError::Limit { .. })), "{refused:?}");
    let refused = block_on(proof::gemm(&gpu, BlockType::Q4K, 1, 1, 256, false)).map(|_| ());
    assert!(matches!(refused, Err(GpuError::OutOfMemory(_))), "{refused:?}");
}
