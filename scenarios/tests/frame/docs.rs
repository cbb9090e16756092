//! Documents speak of what is there: their links lead somewhere and the recipes they show exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// All Markdown files of the tree; build outputs and hidden directories are not looked into.
fn documents(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                pending.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// Targets of `[text](target)` and `![text](target)` that are files of this repository.
fn local_links(text: &str) -> Vec<&str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains("://"))
        .collect()
}

/// Recipes that a text calls: the word after `./dev` or `just` in code.
fn recipes_called(text: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let code: Vec<&str> = if fenced { vec![line] } else { line.split('`').skip(1).step_by(2).collect() };
        for piece in code {
            let mut words = piece.split_whitespace();
            while let Some(word) = words.next() {
                if matches!(word, "./dev" | "just")
                    && let Some(recipe) = words.next()
                    && recipe.chars().next().is_some_and(|c| c.is_ascii_lowercase())
                {
                    found.insert(recipe);
                }
            }
        }
    }
    found
}

/// Recipes of a justfile, each with whether a line of help stands before it.
fn recipes(justfile: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    let mut before = "";
    for line in justfile.lines() {
        let head = line.split(':').next().unwrap_or_default();
        let name = head.split_whitespace().next().unwrap_or_default();
        let is_recipe = line.contains(':')
            && !line.contains(":=")
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && !line.starts_with(' ');
        if is_recipe && before != "[private]" {
            found.push((name, before.starts_with("# ")));
        }
        before = line;
    }
    found
}

#[test]
fn every_link_in_the_documents_leads_somewhere() {
    let root = super::root();
    let documents = documents(&root);
    assert!(documents.iter().any(|f| f.ends_with("README.md")), "{documents:?}");
    let mut broken = Vec::new();
    for document in &documents {
        let text = std::fs::read_to_string(document).unwrap();
        for link in local_links(&text) {
            if !document.parent().unwrap().join(link).exists() {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_recipe_in_the_documents_exists_and_has_help() {
    let root = super::root();
    let justfile = std::fs::read_to_string(root.join("justfile")).unwrap();
    let recipes = recipes(&justfile);
    for (name, helped) in &recipes {
        assert!(helped, "recipe {name} has no line of help");
    }
    let names: BTreeSet<&str> = recipes.iter().map(|(name, _)| *name).collect();
    for name in ["demo", "verify", "test", "lint", "doctor", "shell"] {
        assert!(names.contains(name), "{names:?} lacks {name}");
    }
    for document in documents(&root) {
        let text = std::fs::read_to_string(&document).unwrap();
        // The ledger names what is still to come.
        if document.ends_with("docs/features.md") {
            continue;
        }
        for called in recipes_called(&text) {
            assert!(names.contains(called), "{}: there is no recipe {called}", document.display());
        }
    }
}

#[test]
fn links_and_recipes_are_read_from_text() {
    assert_eq!(local_links("[a](b.md#c) ![d](e/f.svg) [g](https://h) [i](#j)"), ["b.md", "e/f.svg"]);
    let text = "just read `./dev demo --keep` and `just lint`\n```\n./dev verify   # all\n```\n`just -l`";
    assert_eq!(recipes_called(text), BTreeSet::from(["demo", "lint", "verify"]));
    let justfile = "x := 'y'\n# help\nbuild:\n    a: b\n[private]\ndefault:\nbare *args: build\n";
    assert_eq!(recipes(justfile), [("build", true), ("bare", false)]);
}
