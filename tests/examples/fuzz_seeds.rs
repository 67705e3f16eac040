//! Writes what the fuzz targets begin from into a corpus folder, one subfolder a target: real files, the same files cut at
//! sixteen places, and 256 changed ones of each target by a fixed seed.
//!
//!     cargo run -p zen-edge-tests --example fuzz_seeds -- fuzz/corpus [REAL_FILE…]
//!
//! Of each real GGUF or safetensors file that is named, the beginning is taken too: its header is what a reader parses.

use fastrand::Rng;
use std::fs;
use std::path::{Path, PathBuf};
use zen_edge_tests::fuzzing::{TARGETS, changed};

/// How much is taken of a real file that is too large to be fuzzed whole.
const BEGINNINGS: [usize; 4] = [512, 4 << 10, 32 << 10, 128 << 10];

fn main() -> std::io::Result<()> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = args.next().unwrap_or_else(|| "fuzz/corpus".into());
    let real: Vec<PathBuf> = args.collect();
    for target in &TARGETS {
        let folder = folder.join(target.name);
        fs::create_dir_all(&folder)?;
        let mut seeds = (target.seeds)();
        for path in real.iter().filter(|path| belongs(path, target.name)) {
            let file = fs::read(path)?;
            seeds.extend(BEGINNINGS.iter().filter_map(|len| file.get(..*len)).map(<[u8]>::to_vec));
        }
        let mut files = 0;
        let mut write = |kind: &str, bytes: &[u8]| {
            files += 1;
            fs::write(folder.join(format!("{kind}-{files:04}")), bytes)
        };
        for seed in &seeds {
            write("real", seed)?;
            for part in 1..16 {
                write("cut", &seed[..seed.len() * part / 16])?;
            }
        }
        let mut random = Rng::with_seed(20_261_201);
        for _ in 0..256 {
            let of = |random: &mut Rng| random.usize(..seeds.len());
            let (file, other) = (of(&mut random), of(&mut random));
            write("changed", &changed(&mut random, &seeds[file], &seeds[other]))?;
        }
        println!("{}: {files} files", target.name);
    }
    Ok(())
}

/// Whether a real file is of the kind that a target reads.
fn belongs(path: &Path, target: &str) -> bool {
    let kind = path.extension().and_then(|kind| kind.to_str());
    kind.is_some_and(|kind| kind == target)
}
