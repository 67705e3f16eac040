//! Writes the real files that the fuzz targets begin from into a corpus folder, one subfolder a target.
//!
//!     cargo run -p zen-edge-tests --example fuzz_seeds -- fuzz/corpus

use zen_edge_tests::fuzzing::TARGETS;

fn main() -> std::io::Result<()> {
    let folder = std::path::PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "fuzz/corpus".into()));
    for target in &TARGETS {
        let folder = folder.join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (at, seed) in (target.seeds)().into_iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{at}")), seed)?;
        }
    }
    Ok(())
}
