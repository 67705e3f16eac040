//! The pages' snippets are those of files that are compiled or parsed: mobile/scenario/Snippets.kt and mobile/swift/Snippets, the
//! samples, and the Gradle scripts.

use std::path::{Path, PathBuf};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// A text's lines without their indentation, so that a part of a function is found in it.
fn flat(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// The blocks of a page, with their language and line.
fn blocks(text: &str) -> Vec<(String, usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| !line.starts_with("```")).collect();
        blocks.push((language.to_owned(), at + 1, body.join("\n")));
    }
    blocks
}

#[test]
fn snippets_stand_in_files_that_are_compiled_or_parsed() {
    let swift = [
        "mobile/swift/Snippets/Snippets.swift",
        "mobile/swift/Package.swift",
        "mobile/swift/Sample/ZenEdgeSample.swift",
    ];
    let kotlin = [
        "mobile/scenario/Snippets.kt",
        "mobile/kotlin/sample/build.gradle.kts",
        "mobile/kotlin/sample/src/main/kotlin/ai/zenlm/edge/sample/MainActivity.kt",
    ];
    let python = ["mobile/python/zen_edge/__init__.py", "mobile/scenario/scenario.py"];
    let read = |files: &[&str]| -> Vec<String> {
        files.iter().map(|file| flat(&std::fs::read_to_string(repository(file)).unwrap())).collect()
    };
    let (swift, kotlin, python) = (read(&swift), read(&kotlin), read(&python));
    let mut found = 0;
    for page in ["docs/ios.md", "docs/android.md", "mobile/README.md"] {
        let text = std::fs::read_to_string(repository(page)).unwrap();
        for (language, line, body) in blocks(&text) {
            let files = match &*language {
                "swift" => &swift,
                "kotlin" => &kotlin,
                "python" => &python,
                _ => continue,
            };
            let body = flat(&body);
            assert!(
                !body.is_empty() && files.iter().any(|file| file.contains(&body)),
                "{page}:{line}: {body}"
            );
            found += 1;
        }
    }
    assert!(found >= 10, "{found} snippets");
}
