//! What the linker is told where only a target asks for it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "android") {
        // Devices with pages of 16 KiB do not load a library that is aligned to 4.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,max-page-size=16384");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,common-page-size=16384");
        // Equal functions once, and relocations in the packed form that Android reads since version 6: a tenth of the library.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-O2,--icf=all");
        println!("cargo:rustc-cdylib-link-arg=-Wl,--pack-dyn-relocs=android");
        // One table of names, of the kind that Android reads since version 6.
        println!("cargo:rustc-cdylib-link-arg=-Wl,--hash-style=gnu");
    }
}
