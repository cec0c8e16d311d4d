//! No type does everything: none has more than 40 methods, counted over all its `impl` blocks in all modules of its crate. A type with more is several parts
//! that see each other's state. Methods of traits are not counted, since the trait asks for them, nor is what is compiled for tests only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::{Attribute, ImplItem, Item, Type};

const MAX_METHODS: usize = 40;

/// What one crate defines and implements, with the modules in which that stands.
#[derive(Default)]
struct Found {
    types: Vec<(Vec<String>, String)>,
    impls: Vec<(Vec<String>, String, usize)>,
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string().split_whitespace().any(|word| word == "test"))
    })
}

fn read(items: &[Item], module: &[String], found: &mut Found) {
    for item in items {
        match item {
            Item::Struct(item) => found.types.push((module.to_vec(), item.ident.to_string())),
            Item::Enum(item) => found.types.push((module.to_vec(), item.ident.to_string())),
            Item::Union(item) => found.types.push((module.to_vec(), item.ident.to_string())),
            Item::Impl(item) if item.trait_.is_none() && !is_for_tests(&item.attrs) => {
                let Type::Path(path) = &*item.self_ty else { continue };
                let name = path.path.segments.last().unwrap().ident.to_string();
                let is_method = |item: &&ImplItem| matches!(item, ImplItem::Fn(method) if !is_for_tests(&method.attrs));
                found.impls.push((module.to_vec(), name, item.items.iter().filter(is_method).count()));
            }
            Item::Mod(item) if !is_for_tests(&item.attrs) => {
                if let Some((_, items)) = &item.content {
                    read(items, &[module, &[item.ident.to_string()]].concat(), found);
                }
            }
            _ => {}
        }
    }
}

/// Files below `folder` whose module a `mod` item with `#[cfg(test)]` declares are told by their name.
fn read_folder(folder: &Path, module: &[String], found: &mut Found) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name == "tests" {
            continue;
        }
        let own = match name.as_str() {
            "lib" | "main" | "mod" => module.to_vec(),
            _ => [module, &[name]].concat(),
        };
        if path.is_dir() {
            read_folder(&path, &own, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            read(&file.items, &own, found);
        }
    }
}

/// By type. Of several types of one name an `impl` is that one's which stands nearest.
fn methods(found: &Found) -> BTreeMap<(Vec<String>, String), usize> {
    let mut counts = BTreeMap::new();
    for (module, name, methods) in &found.impls {
        let shared = |other: &[String]| module.iter().zip(other).take_while(|(left, right)| left == right).count();
        let defined = found.types.iter().filter(|(_, other)| other == name).max_by_key(|(other, _)| shared(other));
        // One of another crate, by a trait of ours that is none: nothing such is.
        let Some(key) = defined else { continue };
        *counts.entry(key.clone()).or_default() += methods;
    }
    counts
}

#[test]
fn no_type_has_more_than_forty_methods() {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap().parent().unwrap().to_owned();
    let (mut large, mut types) = (Vec::new(), 0);
    for package in std::fs::read_dir(crates).unwrap() {
        let package = package.unwrap().path();
        let (name, source) = (package.file_name().unwrap().to_str().unwrap().to_owned(), package.join("src"));
        if !source.is_dir() {
            continue;
        }
        let mut found = Found::default();
        read_folder(&source, &[], &mut found);
        let counts = methods(&found);
        types += counts.len();
        let more = counts.into_iter().filter(|(_, count)| *count > MAX_METHODS);
        large.extend(more.map(|((_, of), count)| (name.clone(), of, count)));
    }
    // Or nothing was read at all.
    assert!(types > 500, "{types} types with methods");
    assert!(large.is_empty(), "split these, which have more than {MAX_METHODS} methods, into parts: {large:?}");
}
