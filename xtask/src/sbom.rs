//! `cargo xtask sbom`: what a build contains, as a CycloneDX document.

use crate::run::cargo;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// The package whose build is described.
    #[arg(long, default_value = "zen-edge")]
    package: String,
    /// Where the document goes; standard output where nothing is said.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The target that is built for; of the dependencies only what it needs is listed.
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
}

/// Writes the document.
pub fn run(args: &Args) -> Result<(), String> {
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--locked"]);
    if let Some(target) = &args.target {
        command.args(["--filter-platform", target]);
    }
    let ran = command.output().map_err(|e| format!("cargo could not be started: {e}"))?;
    if !ran.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&ran.stderr)));
    }
    let metadata =
        serde_json::from_slice(&ran.stdout).map_err(|e| format!("cargo metadata is no JSON: {e}"))?;
    let document = document(&metadata, &args.package)?;
    let text = serde_json::to_string_pretty(&document).map_err(|e| e.to_string())?;
    match &args.out {
        Some(path) => {
            std::fs::write(path, text + "\n").map_err(|e| format!("cannot write {}: {e}", path.display()))
        }
        None => {
            println!("{text}");
            Ok(())
        }
    }
}

/// CycloneDX 1.6 of a package and all that is linked into it: no build scripts' and no tests' dependencies.
fn document(metadata: &Value, package: &str) -> Result<Value, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|p| (text(&p["id"]), p)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|n| (text(&n["id"]), n)).collect();
    let members: BTreeSet<String> = list(&metadata["workspace_members"]).iter().map(text).collect();
    let root = members
        .iter()
        .find(|id| packages.get(*id).is_some_and(|p| p["name"] == package))
        .ok_or_else(|| format!("the workspace has no package {package}"))?;
    let linked = |node: &Value| -> Vec<String> {
        let kinds = |dep: &Value| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        list(&node["deps"]).iter().filter(|dep| kinds(dep)).map(|dep| text(&dep["pkg"])).collect()
    };
    let (mut seen, mut open) = (BTreeSet::from([root.clone()]), vec![root.clone()]);
    while let Some(id) = open.pop() {
        for next in nodes.get(&id).map(&linked).unwrap_or_default() {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    let url = |p: &Value| format!("pkg:cargo/{}@{}", text(&p["name"]), text(&p["version"]));
    let component = |id: &String| {
        let p = &packages[id];
        let mut entry = json!({
            "type": if id == root { "application" } else { "library" },
            "bom-ref": url(p), "purl": url(p), "name": p["name"], "version": p["version"],
            "licenses": [{"expression": p["license"]}],
        });
        if let Some(about) = p["description"].as_str() {
            entry["description"] = about.trim().into();
        }
        entry
    };
    let depends = |id: &String| {
        let on: Vec<String> =
            nodes.get(id).map(&linked).unwrap_or_default().iter().map(|d| url(&packages[d])).collect();
        json!({"ref": url(&packages[id]), "dependsOn": on})
    };
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": component(root)},
        "components": seen.iter().filter(|id| *id != root).map(component).collect::<Vec<_>>(),
        "dependencies": seen.iter().map(depends).collect::<Vec<_>>(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_and_what_only_builds_or_tests_is_not() {
        let package = |name: &str| json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT"});
        let dep =
            |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind, "target": null}]});
        let packages: Vec<Value> = ["app", "lib", "deep", "builder", "tester"].map(package).into();
        let metadata = json!({
            "packages": packages,
            "workspace_members": ["app"],
            "resolve": {"nodes": [
                {"id": "app", "deps": [dep("lib", Value::Null), dep("builder", "build".into()), dep("tester", "dev".into())]},
                {"id": "lib", "deps": [dep("deep", Value::Null)]},
                {"id": "deep", "deps": []}, {"id": "builder", "deps": []}, {"id": "tester", "deps": []},
            ]},
        });
        let document = document(&metadata, "app").unwrap();
        let names: Vec<_> =
            document["components"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
        assert_eq!(names, ["deep", "lib"]);
        assert_eq!(document["metadata"]["component"]["purl"], "pkg:cargo/app@1.0.0");
        assert_eq!(
            document["dependencies"][0],
            json!({"ref": "pkg:cargo/app@1.0.0", "dependsOn": ["pkg:cargo/lib@1.0.0"]})
        );
        assert!(super::document(&metadata, "other").is_err());
    }
}
