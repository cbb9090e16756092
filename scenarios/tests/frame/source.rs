//! Reads Rust source as tokens: which paths a file names, where it is unsafe, which tests it holds.
//!
//! Tokens rather than a syntax tree, since half of a daemon's code sits inside macros (`select!`, `proptest!`), which
//! a syntax tree keeps as opaque tokens. Comments and strings are gone by then.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One Rust file of a tree.
pub(super) struct Source {
    /// Path relative to the root of the tree, with `/`.
    pub(super) path: String,
    /// Lines in the file.
    pub(super) lines: usize,
    tokens: TokenStream,
}

/// A path as written, from its first segment: `crate::route::plan` gives `["crate", "route", "plan"]`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// Line of its first segment.
    pub(super) line: usize,
    /// Segments; `crate` first for every path into the file's own crate, `super` and `self` having been resolved.
    pub(super) segments: Vec<String>,
}

impl Source {
    /// Tokens of one file.
    pub(super) fn parse(path: &str, text: &str) -> Result<Self> {
        let tokens = TokenStream::from_str(text).map_err(|e| anyhow::anyhow!("read {path} as Rust: {e}"))?;
        Ok(Self { path: path.to_owned(), lines: text.lines().count(), tokens })
    }

    /// All Rust files below `root/dir`, sorted by path; none when there is no such directory.
    pub(super) fn below(root: &Path, dir: &str) -> Result<Vec<Self>> {
        let mut files = Vec::new();
        collect(&root.join(dir), &mut files)?;
        files.sort();
        files
            .into_iter()
            .map(|file| {
                let text =
                    std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
                let relative = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().replace('\\', "/");
                Self::parse(&relative, &text)
            })
            .collect()
    }

    /// Module path of the file inside its crate: `daemon/src/route/plan.rs` gives `["route", "plan"]`.
    pub(super) fn module(&self) -> Vec<String> {
        let inside = self.path.split_once("/src/").map_or(self.path.as_str(), |(_, rest)| rest);
        let mut module: Vec<String> = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        let last_is_directory_file = match module.last().map(String::as_str) {
            Some("mod") => true,
            Some("lib" | "main") => module.len() == 1,
            _ => false,
        };
        if last_is_directory_file {
            module.pop();
        }
        module
    }

    /// Every path of two segments or more, and every `use`d or `extern` single name. `own` is the crate's name from
    /// outside, by which its binary (`main.rs`) calls it; such paths begin with `crate` too.
    pub(super) fn paths(&self, own: &str) -> Vec<Named> {
        let mut found = Vec::new();
        let tokens: Vec<TokenTree> = self.tokens.clone().into_iter().collect();
        walk_paths(&tokens, &self.module(), &mut found);
        for named in &mut found {
            if named.segments[0] == own {
                "crate".clone_into(&mut named.segments[0]);
            }
        }
        found
    }

    /// Lines on which the keyword `unsafe` stands, attributes such as `#[unsafe(no_mangle)]` included.
    pub(super) fn unsafe_lines(&self) -> Vec<usize> {
        let mut lines = Vec::new();
        walk(&self.tokens, &mut |token| {
            if let TokenTree::Ident(ident) = token
                && ident == "unsafe"
            {
                lines.push(ident.span().start().line);
            }
        });
        lines
    }

    /// Names of the functions that an attribute makes a test: `#[test]`, `#[tokio::test]`, `#[rstest]`.
    pub(super) fn tests(&self) -> Vec<String> {
        let mut names = Vec::new();
        walk_tests(&self.tokens, &mut names);
        names
    }
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn walk(tokens: &TokenStream, see: &mut impl FnMut(&TokenTree)) {
    for token in tokens.clone() {
        see(&token);
        if let TokenTree::Group(group) = &token {
            walk(&group.stream(), see);
        }
    }
}

fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(i)) => Some(i.to_string()),
        _ => None,
    }
}

fn is_punct(token: Option<&TokenTree>, c: char) -> bool {
    matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == c)
}

fn colons(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')
}

fn walk_paths(tokens: &[TokenTree], module: &[String], found: &mut Vec<Named>) {
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(i) if i == "mod" => {
                // An inline module is one level deeper, which is what `super` counts from.
                if let (Some(name), Some(TokenTree::Group(body))) =
                    (ident(tokens.get(at + 1)), tokens.get(at + 2))
                    && body.delimiter() == Delimiter::Brace
                {
                    let deeper = [module, &[name]].concat();
                    walk_paths(&body.stream().into_iter().collect::<Vec<_>>(), &deeper, found);
                    at += 3;
                    continue;
                }
                at += 1;
            }
            TokenTree::Ident(i) if i == "use" || colons(tokens, at + 1) => {
                let is_use = i == "use";
                let start = if is_use { at + 1 + 2 * usize::from(colons(tokens, at + 1)) } else { at };
                at = path(tokens, start, &[], is_use, module, found).max(at + 1);
            }
            TokenTree::Group(group) => {
                walk_paths(&group.stream().into_iter().collect::<Vec<_>>(), module, found);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

/// Reads one path (a whole tree of them inside `use`) from `at` on and returns where it ends.
fn path(
    tokens: &[TokenTree],
    mut at: usize,
    prefix: &[String],
    single_counts: bool,
    module: &[String],
    found: &mut Vec<Named>,
) -> usize {
    let line = tokens.get(at).map_or(0, |t| t.span().start().line);
    let mut segments = prefix.to_vec();
    loop {
        match tokens.get(at) {
            Some(TokenTree::Ident(i)) => {
                segments.push(i.to_string());
                at += 1;
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace && single_counts => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let mut start = 0;
                while start < inner.len() {
                    path(&inner, start, &segments, true, module, found);
                    let comma = inner[start..].iter().position(|t| is_punct(Some(t), ','));
                    start = comma.map_or(inner.len(), |c| start + c + 1);
                }
                return at + 1;
            }
            // `*`, or a turbofish `Vec::<u8>`: the path ends here.
            _ => break,
        }
        if !colons(tokens, at) {
            break;
        }
        at += 2;
    }
    if segments.len() > 1 || single_counts && !segments.is_empty() {
        found.push(Named { line, segments: resolve(&segments, module) });
    }
    at
}

/// Turns a leading `self` or `super::super` into `crate::…`, seen from `module`.
fn resolve(segments: &[String], module: &[String]) -> Vec<String> {
    let ups = segments.iter().take_while(|s| *s == "super" || *s == "self").count();
    if ups == 0 {
        return segments.to_vec();
    }
    let levels = segments[..ups].iter().filter(|s| *s == "super").count();
    let base = &module[..module.len().saturating_sub(levels)];
    [&["crate".to_owned()], base, &segments[ups..]].concat()
}

fn walk_tests(stream: &TokenStream, names: &mut Vec<String>) {
    let mut marked = false;
    let mut tokens = stream.clone().into_iter().peekable();
    while let Some(token) = tokens.next() {
        match &token {
            TokenTree::Punct(p) if p.as_char() == '#' => {
                if let Some(TokenTree::Group(attribute)) = tokens.peek() {
                    marked |= is_test_attribute(&attribute.stream());
                    tokens.next();
                }
            }
            TokenTree::Ident(i) if i == "fn" => {
                if let (true, Some(TokenTree::Ident(name))) = (marked, tokens.peek()) {
                    names.push(name.to_string());
                }
                marked = false;
            }
            TokenTree::Group(group) => {
                // A body or a macro's input; `pub(crate)` between the attribute and `fn` keeps the mark.
                if group.delimiter() == Delimiter::Brace {
                    marked = false;
                }
                walk_tests(&group.stream(), names);
            }
            _ => {}
        }
    }
}

fn is_test_attribute(stream: &TokenStream) -> bool {
    let mut last = String::new();
    for token in stream.clone() {
        match token {
            TokenTree::Ident(i) => last = i.to_string(),
            TokenTree::Punct(p) if p.as_char() == ':' => {}
            _ => break,
        }
    }
    last == "test" || last == "rstest"
}

#[test]
fn paths_are_read_through_use_trees_macros_and_super() {
    let text = r#"
        use crate::{route::{plan, bgp as b}, model};
        use super::super::health;
        // use crate::comment;
        fn f() { tokio::select! { x = crate::dataplane::go() => "crate::text::no" } }
        mod tests { use super::*; use super::super::state::State; }
    "#;
    let source = Source::parse("daemon/src/source/file.rs", text).unwrap();
    let got: Vec<String> = source.paths("weir").iter().map(|n| n.segments.join("::")).collect();
    assert_eq!(
        got,
        [
            "crate::route::plan",
            "crate::route::bgp",
            "crate::model",
            "crate::health",
            "tokio::select",
            "crate::dataplane::go",
            "crate::source::file",
            "crate::source::state::State",
        ]
    );
}

#[test]
fn tests_are_found_by_attribute_also_inside_macros() {
    let text = r"
        #[test] fn plain() {}
        #[tokio::test(flavor = 'm')] async fn with_runtime() {}
        #[rstest] #[case(1)] pub(crate) fn cases() {}
        proptest! { #![proptest_config(c)] #[test] fn property(x in 0..3) {} }
        #[cfg(test)] mod t { fn helper() {} /* #[test] fn commented() {} */ }
        #[inline] fn not_one() {}
    ";
    let source = Source::parse("x.rs", &text.replace("'m'", "\"m\"")).unwrap();
    assert_eq!(source.tests(), ["plain", "with_runtime", "cases", "property"]);
}
