//! No circle between modules: what two need lies below both, or is registered by the one with the other at start.
//!
//! For every module with children, in every crate's `src`, there is a graph between these children. A child uses a sibling where a path in
//! it or below it (a `use`, an inline path, a path in a macro's arguments or in an attribute) leads to the sibling or below it. `crate`,
//! `self`, `super`, imports, globs and macros are followed, and an item that a module re-exports counts as the module's that defines it.
//! These graphs have no circle. A module and its own children count as one: a parent lists and calls its children, and they extend what the
//! parent defines. Methods are not seen, since a path names their type only; nor is what is compiled for tests only.

mod graph;
mod source;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use graph::Knot;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap().parent().unwrap().to_owned()
}

/// `preload: capture -> process -> capture`, and where each uses the next.
fn described(name: &str, knot: &Knot) -> String {
    let folder = if knot.folder.is_empty() { "crate".to_owned() } else { knot.folder.join("::") };
    let modules = knot.modules.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    let mut text = format!("{name}, {folder}: {modules}\n");
    for circle in &knot.circles {
        let start = &circle[0].0;
        let way: Vec<&str> = circle.iter().map(|(module, _)| module.as_str()).chain([start.as_str()]).collect();
        writeln!(text, "        {}", way.join(" -> ")).unwrap();
        for (module, place) in circle {
            let file = place.file.strip_prefix(crates()).unwrap_or(&place.file);
            writeln!(text, "            {module}: {}:{}", file.display(), place.line).unwrap();
        }
    }
    text
}

#[test]
fn no_modules_use_each_other_in_a_circle() {
    let (mut roots, mut modules_read, mut circles) = (0, 0, String::new());
    for package in std::fs::read_dir(crates()).unwrap() {
        let package = package.unwrap();
        let name = package.file_name().into_string().unwrap();
        for root in ["lib.rs", "main.rs"].map(|file| package.path().join("src").join(file)) {
            if !root.exists() {
                continue;
            }
            let modules = source::read_crate(&root);
            (roots, modules_read) = (roots + 1, modules_read + modules.len());
            circles.extend(graph::knots(&modules).iter().map(|knot| described(&name, knot)));
        }
    }
    // Or nothing was read at all.
    assert!(roots >= 12 && modules_read > 400, "only {roots} crates and {modules_read} modules were read");
    assert!(circles.is_empty(), "modules use each other in a circle:\n{circles}");
}

/// The knots of a crate of these files.
fn knots_of(files: &[(&str, &str)]) -> Vec<(String, String, Vec<usize>)> {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let modules = source::read_crate(&directory.path().join("lib.rs"));
    let shown = |knot: Knot| {
        let lines = knot.circles.iter().flatten().map(|(_, place)| place.line).collect();
        (knot.folder.join("::"), knot.modules.into_iter().collect::<Vec<_>>().join(" "), lines)
    };
    graph::knots(&modules).into_iter().map(shown).collect()
}

#[test]
fn circles_are_found_however_a_path_is_written() {
    let ways: [(&str, &str); 9] = [
        ("use crate::b::Two;", ""),
        ("fn f() { super::b::two() }", ""),
        ("use super::{b, c};\nfn f() { b::two() }", ""),
        ("fn f() { println!(\"{}\", crate::b::two()) }", ""),
        ("use crate::Two;", "pub use b::Two;"),
        ("use super::*;\nfn f(_: Two) {}", "use b::Two;"),
        ("use super::*;\nfn f() { b::two() }", ""),
        ("#[derive(A)]\nstruct S { #[arg(value_parser = crate::b::two)] s: u8 }", ""),
        ("fn f() { b_macro!() }", ""),
    ];
    for (text, root) in ways {
        let root = format!("mod a; mod b; mod c; {root}");
        let b = "use crate::a::One;\npub struct Two;\npub fn two() {}\nmacro_rules! b_macro { () => {} }\n";
        let found = knots_of(&[("lib.rs", &root), ("a.rs", text), ("b.rs", b), ("c.rs", "")]);
        assert_eq!(found.len(), 1, "{text}");
        assert_eq!((found[0].0.as_str(), found[0].1.as_str()), ("", "a b"), "{text}");
    }
}

#[test]
fn circles_below_a_folder_and_longer_ones_are_found_with_their_lines() {
    let found = knots_of(&[
        ("lib.rs", "mod folder; mod other;"),
        ("other.rs", "use crate::folder::One;"),
        ("folder.rs", "mod a; mod b { use super::c; } mod c; pub use a::One;"),
        ("folder/a.rs", "\npub struct One;\nuse super::b;"),
        ("folder/c.rs", "\nuse crate::folder::One;"),
    ]);
    assert_eq!(found, [("folder".to_owned(), "a b c".to_owned(), vec![3, 1, 2])]);
}

#[test]
fn what_is_no_circle_is_not_called_one() {
    let parts: [(&str, &str); 5] = [
        ("", "use super::Own;"),
        ("#[cfg(test)]\nmod tests { use crate::b::Two; }", "use crate::a::One;"),
        ("use std::collections::b;", "use crate::a::One;"),
        ("fn f(b: u8) { let two = b; g(two) }", "use crate::a::One; fn two() {}"),
        ("/// See [`crate::b::Two`].\nstruct One;", "use crate::a::One;"),
    ];
    for (a, b) in parts {
        let found = knots_of(&[("lib.rs", "mod a; mod b; struct Own; use a::One;"), ("a.rs", a), ("b.rs", b)]);
        assert!(found.is_empty(), "{a} {b}: {found:?}");
    }
}
