//! The table of symbols against what libc exports, what the library exports, and what the documentation says.

#[path = "support/mod.rs"]
#[allow(unreachable_pub, reason = "each test uses a part")]
mod support;
#[allow(unreachable_pub, reason = "the library and the tests share it")]
#[path = "../src/table.rs"]
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use table::{TABLE, Treatment};

/// Symbols of libc that take neither a path nor a descriptor nor a stream, as of glibc 2.36.
const UNCONCERNED: &str = include_str!("libc-unconcerned.txt");

/// Parts of names that smell of files; a symbol of a newer libc that has one must be classified.
const SMELLS: [&str; 26] = [
    "open",
    "close",
    "read",
    "write",
    "stat",
    "seek",
    "sync",
    "trunc",
    "falloc",
    "fadvise",
    "unlink",
    "rename",
    "remove",
    "dup",
    "fcntl",
    "ioctl",
    "mmap",
    "sendfile",
    "splice",
    "copy_file",
    "aio_",
    "lio_",
    "chmod",
    "chown",
    "utime",
    "path",
];

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()))
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

/// Names of the functions that a 64-bit little-endian ELF library defines in `.dynsym`.
fn exported_functions(library: &Path) -> BTreeSet<String> {
    let bytes = std::fs::read(library).unwrap();
    assert!(bytes.starts_with(b"\x7fELF\x02\x01"), "{} is no 64-bit little-endian ELF file", library.display());
    let (sections, entry_bytes, count) = (u64_at(&bytes, 40), u16_at(&bytes, 58), u16_at(&bytes, 60));
    let header = |index: usize| &bytes[sections + index * entry_bytes..];
    const DYNSYM: usize = 11;
    let symbols = (0..count).map(header).find(|section| u32_at(section, 4) == DYNSYM).expect("a .dynsym");
    let names = header(u32_at(symbols, 40));
    let (names_at, at, length) = (u64_at(names, 24), u64_at(symbols, 24), u64_at(symbols, 32));
    let mut found = BTreeSet::new();
    for symbol in bytes[at..at + length].chunks_exact(24) {
        let kind = symbol[4] & 15;
        let is_defined = u16_at(symbol, 6) != 0;
        // Functions and functions chosen at load.
        if is_defined && (kind == 2 || kind == 10) {
            let name = &bytes[names_at + u32_at(symbol, 0)..];
            let end = name.iter().position(|byte| *byte == 0).unwrap();
            found.insert(String::from_utf8(name[..end].to_vec()).unwrap());
        }
    }
    found
}

/// The libc that this test itself runs on.
fn libc_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("libc.so.6"));
    PathBuf::from(path.expect("libc.so.6 among this process's mappings"))
}

#[test]
fn every_symbol_stands_in_the_table_once() {
    let mut seen = BTreeSet::new();
    for symbol in TABLE.iter().flat_map(|group| group.symbols) {
        assert!(seen.insert(symbol), "{symbol} stands in the table twice");
    }
}

#[test]
fn every_symbol_of_libc_is_classified() {
    let exported = exported_functions(&libc_library());
    let table: BTreeSet<&str> = TABLE.iter().flat_map(|group| group.symbols.iter().copied()).collect();
    let unconcerned: BTreeSet<&str> = UNCONCERNED.split_whitespace().collect();
    // SAFETY: answers a string that stays.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    let is_the_lists_libc = version == c"2.36" && cfg!(target_arch = "x86_64");
    let both: Vec<_> = table.intersection(&unconcerned).collect();
    assert!(both.is_empty(), "in the table and among the unconcerned: {both:?}");
    let missing: Vec<&str> = exported
        .iter()
        .map(String::as_str)
        .filter(|name| !table.contains(name) && !unconcerned.contains(name))
        // In another libc than the list's, names that do not smell of files need no decision.
        .filter(|name| is_the_lists_libc || SMELLS.iter().any(|smell| name.contains(smell)))
        .collect();
    assert!(missing.is_empty(), "not in src/table.rs nor in tests/libc-unconcerned.txt: {missing:?}");
}

#[test]
fn the_library_exports_what_the_table_says_it_wraps() {
    let exported = exported_functions(&support::library());
    let is_wrapped = |treatment: &Treatment| !matches!(treatment, Treatment::Harmless(_));
    let wrapped: BTreeSet<&str> = TABLE
        .iter()
        .filter(|group| is_wrapped(&group.treatment))
        .flat_map(|group| group.symbols.iter().copied())
        .collect();
    let missing: Vec<_> = wrapped.iter().filter(|name| !exported.contains(**name)).collect();
    assert!(missing.is_empty(), "served or refused by the table, but not exported: {missing:?}");
    let extra: Vec<_> = exported
        .iter()
        .filter(|name| !wrapped.contains(name.as_str()) && !name.starts_with("MPI_") && !name.starts_with("mpi_"))
        .collect();
    assert!(extra.is_empty(), "exported, but not in the table: {extra:?}");
}

#[test]
fn the_sources_wrap_each_symbol_in_the_room_the_table_names() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut texts = BTreeMap::new();
    for group in TABLE {
        let Some(room) = group.room else { continue };
        let text = texts.entry(room).or_insert_with(|| std::fs::read_to_string(sources.join(room)).unwrap());
        for symbol in group.symbols {
            let is_here = text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == *symbol);
            assert!(is_here, "{symbol} is not in src/{room}");
        }
    }
}

fn documentation() -> String {
    let mut text = String::from(
        "# What the preload library does with each call\n\n\
         Made from `crates/preload/src/table.rs`; a test holds the two together. *Served*: means the same on a managed file as on an\n\
         ordinary one. *Refused*: fails on a managed file with the errno named, as the kernel does where a file system cannot do it.\n\
         *Harmless*: not wrapped, for the reason given. Unmanaged files go to libc in all cases.\n",
    );
    type Belongs = fn(&Treatment) -> bool;
    let parts: [(&str, Belongs); 3] = [
        ("Served", |treatment| matches!(treatment, Treatment::Served)),
        ("Refused on managed files", |treatment| matches!(treatment, Treatment::Refused(_))),
        ("Harmless", |treatment| matches!(treatment, Treatment::Harmless(_))),
    ];
    for (title, belongs) in parts {
        let _ = write!(text, "\n## {title}\n");
        for group in TABLE.iter().filter(|group| belongs(&group.treatment)) {
            let remark = match (&group.treatment, group.room) {
                (Treatment::Served, Some(room)) => format!("in `src/{room}`"),
                (Treatment::Refused(errno), Some(room)) => format!("{errno}; in `src/{room}`"),
                (Treatment::Harmless(reason), _) => (*reason).to_owned(),
                _ => String::new(),
            };
            let _ = write!(text, "\n**{}** ({remark}):\n", group.kind);
            let names: Vec<_> = group.symbols.iter().map(|symbol| format!("`{symbol}`")).collect();
            text.push_str(&names.join(" "));
            text.push('\n');
        }
    }
    text.push_str(
        "\n## MPI\n\nAll reads and writes of MPI-IO with their large-count (`_c`) and OpenMPI's Fortran twins, and `MPI_File_open`, `close`, \
         `delete`,\n`set_size`, `preallocate`, `sync`, `set_view`, `seek`, `seek_shared`, `MPI_Init`, `MPI_Init_thread`: in `src/mpi/calls.rs`.\n",
    );
    text
}

#[test]
fn the_documentation_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/interposer.md");
    let wanted = documentation();
    if std::env::var_os("STRIPEWISE_WRITE_DOCS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/interposer.md differs from the table; make it anew: STRIPEWISE_WRITE_DOCS=1 cargo test -p stripewise-preload --test table"
    );
}
