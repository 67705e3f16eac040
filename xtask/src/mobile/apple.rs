//! The XCFramework and the Swift package around it. It is a folder with a list of its parts, so that it can be put together
//! without Xcode; only the libraries of targets that this machine's Rust has are in it, and what is missing is said.

use super::{
    Made, NAME, PackageArgs, build, copy, copy_folder, copy_pack, elf, folder, fresh, io, sysroot_tool,
};
use crate::run::succeed;
use object::read::archive::ArchiveFile;
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// A part of the XCFramework.
struct Slice {
    target: &'static str,
    /// Apple's name of its folder.
    name: &'static str,
    platform: &'static str,
    variant: Option<&'static str>,
}

const SLICES: [Slice; 3] = [
    Slice { target: "aarch64-apple-ios", name: "ios-arm64", platform: "ios", variant: None },
    Slice {
        target: "aarch64-apple-ios-sim",
        name: "ios-arm64-simulator",
        platform: "ios",
        variant: Some("simulator"),
    },
    Slice { target: "aarch64-apple-darwin", name: "macos-arm64", platform: "macos", variant: None },
];

/// The oldest systems that the package runs on: Package.swift says the same, and [`run`] compares.
pub const OLDEST: [(&str, &str); 2] =
    [("IPHONEOS_DEPLOYMENT_TARGET", "15.0"), ("MACOSX_DEPLOYMENT_TARGET", "12.0")];

/// `cargo xtask xcframework`.
pub fn run(args: &PackageArgs) -> Result<(), String> {
    states_the_oldest_systems()?;
    let package = folder().join("swift/ZenEdge");
    fresh(&package)?;
    let framework = package.join("ZenEdgeFFI.xcframework");
    let mut made: Option<Made> = None;
    let (mut there, mut lacking) = (Vec::new(), Vec::new());
    for slice in &SLICES {
        if let Err(why) = crate::test::have_target(slice.target) {
            lacking.push(format!("{}: {why}", slice.target));
            continue;
        }
        let library = build(slice.target, "staticlib", &args.features())?;
        let made = match &made {
            None => made.insert(Made::from(&library, folder().join("bindings"))?),
            Some(made) => made,
        };
        made.verify(&library)?;
        let at = framework.join(slice.name);
        copy(&library, &at.join(format!("lib{NAME}.a")))?;
        // In a folder of their own: two frameworks with a `module.modulemap` each would overwrite one another's.
        let headers = at.join("Headers/ZenEdgeFFI");
        copy(&made.bindings.join("swift/ZenEdgeFFI.h"), &headers.join("ZenEdgeFFI.h"))?;
        copy(&made.bindings.join("swift/ZenEdgeFFI.modulemap"), &headers.join("module.modulemap"))?;
        defines(&library, &made.bindings)?;
        args.fits(slice.target, contribution(slice, &library, &made.bindings)?)?;
        there.push(slice);
    }
    let Some(made) = made else { return Err(format!("nothing can be built here: {}", lacking.join("; "))) };
    let list = framework.join("Info.plist");
    std::fs::write(&list, info(&there)).map_err(io(&list))?;
    let sources = crate::root().join("mobile/swift");
    copy_folder(&sources, &package, &|path| !path.ends_with("generated") && !path.ends_with(".build"))?;
    copy(&made.bindings.join("swift/ZenEdge.swift"), &package.join("Sources/ZenEdge/ZenEdge.swift"))?;
    copy_pack(&package.join("Sources/ZenEdge/pack"))?;
    layout(&package, &there)?;
    println!("{}", package.display());
    for why in &lacking {
        println!("not in it: {why}");
    }
    println!("not run: `swift build` and `xcodebuild test`, which need Xcode");
    if lacking.is_empty() || args.check {
        Ok(())
    } else {
        Err("parts are missing: `--check` takes what there is".into())
    }
}

fn states_the_oldest_systems() -> Result<(), String> {
    let path = crate::root().join("mobile/swift/Package.swift");
    let text = std::fs::read_to_string(&path).map_err(io(&path))?;
    for (name, version) in OLDEST {
        let word = if name.starts_with("IPHONE") { "iOS" } else { "macOS" };
        let stated = format!(".{word}(.v{})", version.trim_end_matches(".0"));
        if !text.contains(&stated) {
            return Err(format!("{} does not state {stated}", path.display()));
        }
    }
    Ok(())
}

/// The list of parts that Xcode reads.
fn info(slices: &[&Slice]) -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \
         \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n<plist version=\"1.0\">\n<dict>\n\
         \t<key>AvailableLibraries</key>\n\t<array>\n",
    );
    for slice in slices {
        let variant = slice.variant.map_or(String::new(), |variant| {
            format!("\t\t\t<key>SupportedPlatformVariant</key>\n\t\t\t<string>{variant}</string>\n")
        });
        let (name, platform) = (slice.name, slice.platform);
        let _ = write!(
            text,
            "\t\t<dict>\n\t\t\t<key>BinaryPath</key>\n\t\t\t<string>lib{NAME}.a</string>\n\t\t\t<key>HeadersPath</key>\n\
             \t\t\t<string>Headers</string>\n\t\t\t<key>LibraryIdentifier</key>\n\t\t\t<string>{name}</string>\n\
             \t\t\t<key>LibraryPath</key>\n\t\t\t<string>lib{NAME}.a</string>\n\t\t\t<key>SupportedArchitectures</key>\n\
             \t\t\t<array>\n\t\t\t\t<string>arm64</string>\n\t\t\t</array>\n\t\t\t<key>SupportedPlatform</key>\n\
             \t\t\t<string>{platform}</string>\n{variant}\t\t</dict>\n"
        );
    }
    text + "\t</array>\n\t<key>CFBundlePackageType</key>\n\t<string>XFWK</string>\n\
            \t<key>XCFrameworkFormatVersion</key>\n\t<string>1.0</string>\n</dict>\n</plist>\n"
}

/// Whether a static library defines what the bindings call.
fn defines(library: &Path, bindings: &Path) -> Result<(), String> {
    let bytes = std::fs::read(library).map_err(io(library))?;
    let wrong = |error: object::Error| format!("{}: {error}", library.display());
    let archive = ArchiveFile::parse(&*bytes).map_err(wrong)?;
    let mut defined = BTreeSet::new();
    for member in archive.members() {
        let data = member.map_err(wrong)?.data(&*bytes).map_err(wrong)?;
        // Members that are no objects are tables.
        let Ok(file) = object::File::parse(data) else { continue };
        let names = file.symbols().filter(|symbol| symbol.is_definition() && symbol.is_global());
        defined
            .extend(names.filter_map(|symbol| Some(symbol.name().ok()?.trim_start_matches('_').to_owned())));
    }
    match elf::called(bindings)?.into_iter().find(|name| !defined.contains(name)) {
        None => Ok(()),
        Some(missing) => Err(format!("{} does not define {missing}", library.display())),
    }
}

/// What a static library adds to an app: linked with what the bindings call as its only roots, by the linker that comes with Rust
/// and without Apple's libraries. It does not run.
fn contribution(slice: &Slice, library: &Path, bindings: &Path) -> Result<u64, String> {
    let out = folder().join("links").join(slice.target);
    fresh(&out)?;
    let (roots, linked) = (out.join("roots.txt"), out.join(format!("lib{NAME}.dylib")));
    let names: String = elf::called(bindings)?.iter().map(|name| format!("_{name}\n")).collect();
    std::fs::write(&roots, names).map_err(io(&roots))?;
    let (platform, oldest) =
        if slice.platform == "ios" { ("ios", OLDEST[0].1) } else { ("macos", OLDEST[1].1) };
    let platform = if slice.variant.is_some() { "ios-simulator" } else { platform };
    let mut command = Command::new(sysroot_tool("rust-lld")?);
    command.args([
        "-flavor",
        "darwin",
        "-dylib",
        "-arch",
        "arm64",
        "-platform_version",
        platform,
        oldest,
        oldest,
    ]);
    command.args(["-dead_strip", "-undefined", "dynamic_lookup", "-x", "-exported_symbols_list"]);
    succeed(command.arg(&roots).arg("-o").arg(&linked).arg(library))?;
    Ok(std::fs::metadata(&linked).map_err(io(&linked))?.len())
}

/// Whether the package is whole, and its list names what is there and nothing else.
fn layout(package: &Path, slices: &[&Slice]) -> Result<(), String> {
    let framework = package.join("ZenEdgeFFI.xcframework");
    let list = framework.join("Info.plist");
    let listed = std::fs::read_to_string(&list).map_err(io(&list))?;
    let mut files = vec![
        package.join("Package.swift"),
        package.join("Sources/ZenEdge/ZenEdge.swift"),
        package.join("Sources/ZenEdge/Router.swift"),
        package.join("Sources/ZenEdge/pack/model.gguf"),
    ];
    for slice in slices {
        let at = framework.join(slice.name);
        files.push(at.join(format!("lib{NAME}.a")));
        files.push(at.join("Headers/ZenEdgeFFI/ZenEdgeFFI.h"));
        files.push(at.join("Headers/ZenEdgeFFI/module.modulemap"));
        if listed.matches(&format!("<string>{}</string>", slice.name)).count() != 1 {
            return Err(format!("{} does not list {}", list.display(), slice.name));
        }
    }
    if let Some(missing) = files.iter().find(|file| !file.is_file()) {
        return Err(format!("{} is missing", missing.display()));
    }
    let folders = std::fs::read_dir(&framework).map_err(io(&framework))?.flatten();
    let folders = folders.filter(|entry| entry.path().is_dir()).count();
    if folders != slices.len() {
        return Err(format!("{} has {folders} folders and lists {}", framework.display(), slices.len()));
    }
    Ok(())
}
