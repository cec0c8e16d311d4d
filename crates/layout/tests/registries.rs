//! What stands in a table is one module and one row: nothing else in the tree names it.
//!
//! Each table's names are read from its source. All of `crates/*/src`, the benchmarks, the style sheets and the scripts are searched for them; tests and
//! comments may name what they like. `allowed` lists where a name may stand besides, each with the reason.

mod sources;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use sources::{files_below, for_each_word, relative, root, tokens};

/// A row: its name, and the name of its type or variant, if it has one that others could use.
struct Row {
    name: String,
    identifier: Option<String>,
}

/// A table, and how its rows are named.
struct Registry {
    /// What a row is.
    what: &'static str,
    rows: Vec<Row>,
    /// Whether a string names the row.
    is_text: fn(text: &str, name: &str) -> bool,
    /// Whether an identifier, behind the identifier before it, names the row.
    is_identifier: fn(before: &str, identifier: &str, row: &Row) -> bool,
    /// Files and folders where rows may be named, and why.
    allowed: &'static [(&'static str, &'static str)],
}

/// The name of the rows that only tests have.
const DUMMY: &str = "dummy";

fn text_of(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What stands between `open` and `close`, each time that it does.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Vec<&'a str> {
    text.split(open).skip(1).filter_map(|rest| rest.split(close).next()).collect()
}

fn named(names: Vec<&str>) -> Vec<Row> {
    let rows: Vec<Row> = names
        .into_iter()
        .filter(|name| *name != DUMMY)
        .map(|name| Row { name: name.to_owned(), identifier: None })
        .collect();
    assert!(!rows.is_empty(), "the table was not found");
    rows
}

/// `Variant = "name", "what it is", implementation;`
fn policies() -> Vec<Row> {
    let text = text_of("crates/planner/src/policy.rs");
    let table = between(&text, "\npolicies! {", "\n}")[0];
    let row = |line: &str| {
        let (variant, rest) = line.trim().split_once(" = \"")?;
        Some(Row { name: rest.split('"').next()?.to_owned(), identifier: Some(variant.to_owned()) })
    };
    table.lines().filter_map(row).filter(|row| row.name != DUMMY).collect()
}

/// `Variant(Type)`, and the name in the module of the type.
fn workloads() -> Vec<Row> {
    let folder = root().join("crates/trace/src/workload");
    let mut files = Vec::new();
    files_below(&folder, "rs", &mut files);
    let modules: String = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let of_type = |name: &str| {
        let implementation = between(&modules, &format!("impl Described for {name} {{"), "\n}");
        let name = between(implementation.first()?, "NAME: &'static str = \"", "\"");
        name.first().map(|name| (*name).to_owned())
    };
    let text = text_of("crates/trace/src/workload/benchmark.rs");
    let table = between(&text, "\nbenchmarks! {", "\n}")[0];
    let variants = table.lines().filter_map(|line| Some(line.trim().split_once('(')?.0.to_owned()));
    let is_row = |variant: &String| variant.chars().all(char::is_alphanumeric) && !variant.eq_ignore_ascii_case(DUMMY);
    let row = |variant: String| {
        let name = of_type(&variant).unwrap_or_else(|| panic!("{variant} has no name"));
        Row { name, identifier: Some(variant) }
    };
    variants.filter(is_row).map(row).collect()
}

/// The modules of the rows `module::READER`.
fn trace_readers() -> Vec<Row> {
    let text = text_of("crates/trace/src/reader.rs");
    let table = between(&text, "const READERS: &[Reader] = &[", "];")[0];
    let modules = table.lines().filter_map(|line| line.trim().strip_suffix("::READER,")).collect();
    named(modules)
}

/// The schemes of the modules of the rows `module::KIND`.
fn server_kinds() -> Vec<Row> {
    let text = text_of("crates/store/src/server.rs");
    let table = between(&text, "pub static KINDS:", ";\n")[0];
    let modules = table.split(['[', ',', ']']).filter_map(|row| row.trim().strip_suffix("::KIND"));
    let schemes: Vec<String> = modules
        .map(|module| {
            let text = text_of(&format!("crates/store/src/server/{module}.rs"));
            between(&text, "const SCHEME: &str = \"", "\"")[0].to_owned()
        })
        .collect();
    named(schemes.iter().map(String::as_str).collect())
}

/// The ids of all entries.
fn experiments() -> Vec<Row> {
    let mut files = Vec::new();
    files_below(&root().join("crates/lab/src/reproduce"), "rs", &mut files);
    let text: String = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    named(between(&text, "\n    id: \"", "\"").into_iter().chain(between(&text, "\n        id: \"", "\"")).collect())
}

fn devices() -> Vec<Row> {
    let text = text_of("crates/device/src/named.rs");
    let tables = text.split("#[cfg(test)]").next().unwrap();
    named(between(tables, "\n        name: \"", "\"").into_iter().collect::<BTreeSet<_>>().into_iter().collect())
}

/// The names of the modules of the rows `&module::NATIVE`.
fn file_systems() -> Vec<Row> {
    let text = text_of("crates/planner/src/native.rs");
    let table = between(&text, "pub static NATIVES: &[&Native] = &[", "];")[0];
    named(table.lines().filter_map(|line| line.trim().strip_prefix('&')?.strip_suffix("::NATIVE,")).collect())
}

fn is_word(text: &str, name: &str) -> bool {
    text.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')).any(|word| word == name)
}

fn registries() -> Vec<Registry> {
    vec![
        Registry {
            what: "policy",
            rows: policies(),
            is_text: |text, name| !text.contains(' ') && text.split(',').any(|word| word == name),
            is_identifier: |before, identifier, row| {
                before == "PolicyName" && row.identifier.as_deref() == Some(identifier)
            },
            allowed: &[
                ("crates/planner/src/policy.rs", "the table"),
                ("crates/planner/src/policy/", "the modules"),
                ("crates/planner/src/native/tests/", "tests of whole plans"),
                ("crates/lab/src/reproduce/", "the papers' experiments are about named policies"),
                ("crates/lab/src/demo/", "the demo is about named policies"),
                ("demo/hosts.py", "the demo on several hosts too"),
                ("crates/cli/src/demo.rs", "the demo is about named policies"),
                ("crates/report/src/results.rs", "invented results for tests of other crates"),
                ("crates/trace/src/workload/", "an access pattern is called random too"),
                ("crates/trace/src/statistics.rs", "an access pattern is called random too"),
                ("crates/model/src/caveat.rs", "an order of accesses is called random too"),
                ("crates/columnar/src/stream.rs", "an order of accesses is called random too"),
            ],
        },
        Registry {
            what: "file system to export to",
            rows: file_systems(),
            is_text: |text, name| text == name,
            is_identifier: |before, identifier, row| before == "native" && identifier == row.name,
            allowed: &[
                ("crates/planner/src/native/", "the modules"),
                ("crates/store/src/server/orangefs.rs", "a kind of server of the same name"),
                ("crates/preload/src/mpi/files.rs", "the prefixes that ROMIO takes"),
            ],
        },
        Registry {
            what: "workload",
            rows: workloads(),
            is_text: |text, name| text == name || text.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')),
            is_identifier: |_, identifier, row| row.identifier.as_deref() == Some(identifier),
            allowed: &[
                ("crates/trace/src/workload.rs", "the modules"),
                ("crates/trace/src/workload/", "the modules and the table"),
                ("crates/trace/benches/", "measures each of them"),
                ("crates/lab/src/reproduce/", "the papers' experiments run named workloads"),
                ("crates/lab/src/demo/", "the demo runs a named workload"),
                ("crates/report/src/results.rs", "invented results for tests of other crates"),
                ("bench/agreement.py", "simulates what the demo ran"),
            ],
        },
        Registry {
            what: "trace reader",
            rows: trace_readers(),
            is_text: |text, name| text == name || text.strip_prefix('.') == Some(name),
            is_identifier: |before, identifier, row| before == "reader" && identifier == row.name,
            allowed: &[
                ("crates/trace/src/reader/", "the modules"),
                ("crates/fuzz/src/", "a table of its own: what is fuzzed"),
                ("crates/fuzz/examples/", "makes inputs for that table"),
            ],
        },
        Registry {
            what: "kind of server",
            rows: server_kinds(),
            is_text: |text, name| text.contains(&format!("{name}://")),
            is_identifier: |_, _, _| false,
            allowed: &[
                ("crates/layout/src/cluster/url.rs", "the example in a message"),
                ("crates/fuzz/examples/", "a cluster file to be fuzzed"),
                ("crates/broker/benches/", "a cluster file to be measured"),
                ("setup/browser", "not of servers"),
                ("demo/hosts.py", "the servers of the demo on several hosts"),
            ],
        },
        Registry {
            what: "experiment",
            rows: experiments(),
            is_text: is_word,
            is_identifier: |_, _, _| false,
            allowed: &[
                ("crates/lab/src/reproduce/", "the modules"),
                ("crates/cli/src/reproduce.rs", "examples in the help"),
                ("demo/hosts.py", "the page that it writes refers to one"),
            ],
        },
        Registry {
            what: "device",
            rows: devices(),
            is_text: |text, name| text == name,
            is_identifier: |_, _, _| false,
            allowed: &[
                ("crates/device/src/named.rs", "the table"),
                ("crates/planner/src/native/cephfs/detect.rs", "a class of Ceph's is called so too"),
                ("crates/lab/src/reproduce/", "the papers' experiments run on named devices"),
                ("crates/sim/benches/", "is measured on named devices"),
                ("crates/broker/benches/", "is measured on named devices"),
                ("crates/store/examples/", "is measured on named devices"),
                ("bench/run.py", "is measured on named devices"),
                ("crates/stripewise/src/init/ceph.rs", "a device class of Ceph is called nvme too"),
            ],
        },
    ]
}

/// The string without its quotes; none for another literal.
fn unquoted(literal: &str) -> Option<&str> {
    let begin = literal.find('"')?;
    literal.get(begin + 1..literal.rfind('"')?)
}

/// Identifiers and strings of a file of Rust: whether it is a string, what it is, its line.
fn words_of_rust(path: &Path) -> Names {
    let mut found = Vec::new();
    for_each_word(tokens(path), &mut |token| {
        let (text, line) = (token.to_string(), token.span().start().line);
        match token {
            proc_macro2::TokenTree::Ident(_) => found.push((false, text, line)),
            _ => found.extend(unquoted(&text).map(|text| (true, text.to_owned(), line))),
        }
    });
    found
}

/// Strings of a script, and names after `--` or `.` of a style sheet or a template.
fn words_of_text(text: &str) -> Names {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for quote in ['"', '\''] {
            found.extend(line.split(quote).skip(1).step_by(2).map(|text| (true, text.to_owned(), number + 1)));
        }
        let name = |rest: &str| -> String {
            rest.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect()
        };
        for mark in ["--", ".p-", "p-"] {
            found.extend(line.split(mark).skip(1).map(|rest| (true, name(rest), number + 1)));
        }
    }
    found
}

/// Names in a file: whether each stands in a string, the name, and its line.
type Names = Vec<(bool, String, usize)>;

fn sources() -> Vec<(PathBuf, Names)> {
    let root = root();
    let (mut rust, mut texts) = (Vec::new(), Vec::new());
    for package in std::fs::read_dir(root.join("crates")).unwrap() {
        let package = package.unwrap().path();
        for folder in ["src", "benches", "examples"] {
            files_below(&package.join(folder), "rs", &mut rust);
        }
        for extension in ["css", "html"] {
            files_below(&package.join("src"), extension, &mut texts);
        }
    }
    for folder in ["bench", "demo", "setup"] {
        let files = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        texts.extend(files.filter(|path| path.is_file()));
    }
    texts.push(root.join("Makefile"));
    let rust = rust.into_iter().map(|path| (words_of_rust(&path), path));
    let texts =
        texts.into_iter().map(|path| (words_of_text(&String::from_utf8_lossy(&std::fs::read(&path).unwrap())), path));
    rust.chain(texts).map(|(words, path)| (path, words)).collect()
}

/// The rows that a file names, each with its line.
fn mentions<'a>(registry: &'a Registry, words: &[(bool, String, usize)]) -> Vec<(&'a str, usize)> {
    let mut found = Vec::new();
    let mut before = "";
    for (is_text, word, line) in words {
        let names = |row: &&Row| match is_text {
            true => (registry.is_text)(word, &row.name),
            false => (registry.is_identifier)(before, word, row),
        };
        found.extend(registry.rows.iter().filter(names).map(|row| (row.name.as_str(), *line)));
        before = word;
    }
    found
}

#[test]
fn nothing_but_its_module_and_its_row_names_a_row() {
    let sources = sources();
    let mut wrong = String::new();
    for registry in registries() {
        let mut used = BTreeSet::new();
        for (path, words) in &sources {
            let file = relative(path);
            let found = mentions(&registry, words);
            match registry.allowed.iter().find(|(allowed, _)| file.starts_with(allowed)) {
                Some((allowed, _)) if !found.is_empty() => drop(used.insert(*allowed)),
                Some(_) => {}
                None => {
                    for (name, line) in found {
                        writeln!(wrong, "{file}:{line} names the {} `{name}`", registry.what).unwrap();
                    }
                }
            }
        }
        for (allowed, _) in registry.allowed.iter().filter(|(allowed, _)| !used.contains(allowed)) {
            writeln!(wrong, "{allowed} names no {}; take it off the list", registry.what).unwrap();
        }
    }
    assert!(wrong.is_empty(), "take it from the table, or say in `allowed` why it is named:\n{wrong}");
}

#[test]
fn names_are_read_from_the_tables_and_found_in_sources() {
    let registries = registries();
    let rows = |what: &str| -> Vec<&str> {
        let registry = registries.iter().find(|registry| registry.what == what).unwrap();
        registry.rows.iter().map(|row| row.name.as_str()).collect()
    };
    assert!(rows("policy").starts_with(&["def", "random", "1-dh"]));
    assert!(rows("workload").starts_with(&["ior", "hpio", "btio"]));
    assert_eq!(rows("trace reader"), ["own", "csv", "iosig", "darshan", "dftracer", "recorder"]);
    assert_eq!(rows("kind of server"), ["file", "emulated", "rados", "orangefs"]);
    assert!(rows("experiment").contains(&"h2dp-fig5") && rows("device").contains(&"hdd-7200"));
    let style = words_of_text("a { color: var(--h2dp); }\n.p-1-dh { x: 1 }\nuses(\"def,opt\", 'file:///a')");
    let found = |what: &str| mentions(registries.iter().find(|registry| registry.what == what).unwrap(), &style);
    assert_eq!(found("policy"), [("h2dp", 1), ("1-dh", 2), ("1-dh", 2), ("def", 3), ("opt", 3)]);
    assert_eq!(found("kind of server"), [("file", 3)]);
}
