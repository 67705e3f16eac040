//! tests/CASES.md: every case from the field has its test, or a line that says why not.

use std::collections::BTreeMap;
use std::path::Path;
use zen_edge_tests::{need, root, shared};

/// Case, and what the table says of it.
fn table() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(root().join("tests/CASES.md")).unwrap();
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let (id, word) = (cells.next()?, cells.next()?);
        let is_id = id.len() <= 4
            && id.starts_with(|c: char| c.is_ascii_uppercase())
            && id[1..].parse::<u32>().is_ok();
        is_id.then(|| (id.to_owned(), word.to_owned()))
    });
    let rows: Vec<_> = rows.collect();
    let table: BTreeMap<_, _> = rows.iter().cloned().collect();
    assert_eq!(table.len(), rows.len(), "a case stands twice");
    table
}

/// All test sources of the repository, as one text.
fn sources() -> String {
    fn walk(folder: &Path, text: &mut String) {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !matches!(&*name, "target" | "node_modules" | "dist" | ".git" | "corpus" | "artifacts") {
                    walk(&path, text);
                }
            } else if matches!(path.extension().and_then(|e| e.to_str()), Some("rs" | "ts" | "mjs" | "js")) {
                text.push_str(&std::fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }
    let mut text = String::new();
    walk(&root(), &mut text);
    text
}

#[test]
fn tests_that_the_table_names_are_there_and_the_others_say_why_not() {
    let sources = sources();
    for (id, word) in table() {
        if let Some(why) = word.strip_prefix('–') {
            assert!(why.trim().len() > 20, "{id}: why not?");
            // Where tests hold it that do not bear its id, they are there.
            let named = why.split('`').skip(1).step_by(2);
            for name in named.filter(|name| name.contains('_') && !name.contains([' ', '.', '/'])) {
                assert!(sources.contains(&format!("fn {name}(")), "{id}: there is no test {name}");
            }
            continue;
        }
        let names: Vec<&str> = word.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{id} names no test");
        for name in names {
            let rust = sources.contains(&format!("fn {name}(")) || sources.contains(&format!("mod {name} "));
            // Tests in TypeScript are named by a sentence.
            assert!(rust || sources.contains(&format!("\"{name}")), "{id}: there is no test {name}");
            let bears = name.to_lowercase().split([' ', ',', ':', '_']).any(|part| part == id.to_lowercase());
            assert!(bears, "{id}: {name} does not bear its id");
        }
    }
}

#[test]
fn every_known_case_is_in_the_table() {
    let path = need("every_known_case_is_in_the_table", "the cases from the field", shared("cases/CASES.md"));
    let Some(path) = path else { return };
    let text = std::fs::read_to_string(path).unwrap();
    let ids = text.lines().filter_map(|line| line.strip_prefix("- **")?.split("**").next());
    let table = table();
    let missing: Vec<&str> = ids.filter(|id| !table.contains_key(*id)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
