//! `xtask-wasm IN.wasm FOLDER NAME`: writes FOLDER/NAME.js, NAME.d.ts and NAME_bg.wasm, an ES module for a worker.

use anyhow::{Context, bail};

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [input, folder, name] = args.as_slice() else { bail!("usage: xtask-wasm IN.wasm FOLDER NAME") };
    wasm_bindgen_cli_support::Bindgen::new()
        .input_path(input)
        .out_name(name)
        .web(true)?
        // The package says itself where the module lies.
        .omit_default_module_path(true)
        .typescript(true)
        .generate(folder)
        .with_context(|| format!("no glue for {input}"))
}
