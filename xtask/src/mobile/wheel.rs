//! The Python package: a wheel of the library, its bindings, the layer over them and the default pack.

use super::{PACKAGE, copy, copy_folder, copy_pack, dynamic, folder, fresh, generate, io, strip};
use crate::run::{cargo, succeed};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Puts the package's files together, all over one library.
pub fn layout(library: &Path, package: &Path, bindings: &Path) -> Result<(), String> {
    fresh(bindings)?;
    generate("python", library, bindings)?;
    copy_folder(&crate::root().join("mobile/python/zen_edge"), package, &|path| {
        path.extension().is_some_and(|end| end == "py" || end == "typed")
    })?;
    copy(&bindings.join("zen_edge.py"), &package.join("_bindings.py"))?;
    copy(library, &package.join(dynamic(std::env::consts::OS)))?;
    copy_pack(&package.join("pack"))
}

/// Builds the wheel for this machine.
pub fn build() -> Result<PathBuf, String> {
    let mut command = cargo();
    command.args(["build", "--package", PACKAGE, "--profile", "mobile"]);
    // A server has room for what an app would have to be asked for.
    command.args(["--features", "chat-template"]);
    succeed(&mut command)?;
    let library = super::target_folder().join("mobile").join(dynamic(std::env::consts::OS));
    let tree = folder().join("wheel");
    fresh(&tree)?;
    let package = tree.join("zen_edge");
    layout(&library, &package, &folder().join("bindings-python"))?;
    if cfg!(target_os = "linux") {
        strip(&package.join(dynamic("linux")))?;
    }
    let out = folder().join("dist");
    fresh(&out)?;
    let script = crate::root().join("mobile/python/wheel.py");
    let mut command = Command::new("python3");
    succeed(command.arg(script).arg(&tree).arg(&out).arg(env!("CARGO_PKG_VERSION")))?;
    let made = std::fs::read_dir(&out).map_err(io(&out))?.next();
    made.ok_or("no wheel was made")?.map(|entry| entry.path()).map_err(io(&out))
}
