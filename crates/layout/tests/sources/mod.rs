//! The workspace's sources as tests of identifiers and texts read them.

use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The path below the workspace's root.
pub(crate) fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// Files with this extension, without those of tests.
pub(crate) fn files_below(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, extension, found);
        } else if path.extension().is_some_and(|found| found == extension) && !is_of_tests(&path) {
            found.push(path);
        }
    }
}

/// `dummy.rs` holds a row that a table has in tests only.
fn is_of_tests(path: &Path) -> bool {
    let path = path.to_string_lossy();
    path.ends_with("tests.rs") || path.ends_with("/dummy.rs")
}

/// The tokens of a file of Rust.
///
/// # Panics
/// If it is none.
pub(crate) fn tokens(path: &Path) -> TokenStream {
    let text = std::fs::read_to_string(path).unwrap();
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whether the group is that of a documentation comment.
fn is_doc(group: &Group) -> bool {
    group.stream().into_iter().next().is_some_and(|first| first.to_string() == "doc")
}

fn is_cfg_test(group: &Group) -> bool {
    group.stream().to_string().replace(' ', "") == "cfg(test)"
}

/// Gives each identifier and literal; passes over documentation, and over the item after `#[cfg(test)]`.
pub(crate) fn for_each_word(tokens: TokenStream, word: &mut impl FnMut(&TokenTree)) {
    let mut is_test = false;
    for token in tokens {
        match &token {
            TokenTree::Group(group) if is_cfg_test(group) => is_test = true,
            TokenTree::Group(group) if is_test => is_test = group.delimiter() != Delimiter::Brace,
            TokenTree::Group(group) if is_doc(group) => {}
            TokenTree::Group(group) => for_each_word(group.stream(), word),
            TokenTree::Punct(punct) => is_test &= punct.as_char() != ';',
            _ if is_test => {}
            TokenTree::Ident(_) | TokenTree::Literal(_) => word(&token),
        }
    }
}
