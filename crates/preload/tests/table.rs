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
use table::{Group, NUMBERS, TABLE, Treatment};

/// Symbols of libc that take neither a path nor a descriptor nor a stream, as of glibc 2.36.
const UNCONCERNED: &str = include_str!("libc-unconcerned.txt");

/// System calls that take neither a path nor a descriptor, as of Linux 6.1.
const NUMBERS_UNCONCERNED: &str = include_str!("kernel-unconcerned.txt");

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

fn wrapped_symbols(table: &[Group]) -> BTreeSet<&'static str> {
    let is_wrapped = |group: &&Group| !matches!(group.treatment, Treatment::Harmless(_));
    table.iter().filter(is_wrapped).flat_map(|group| group.symbols.iter().copied()).collect()
}

#[test]
fn the_library_exports_what_the_table_says_it_wraps() {
    let exported = exported_functions(&support::library());
    let wrapped = wrapped_symbols(TABLE);
    let missing: Vec<_> = wrapped.iter().filter(|name| !exported.contains(**name)).collect();
    assert!(missing.is_empty(), "served or refused by the table, but not exported: {missing:?}");
    let extra: Vec<_> = exported
        .iter()
        .filter(|name| !wrapped.contains(name.as_str()) && !name.starts_with("MPI_") && !name.starts_with("mpi_"))
        .filter(|name| name.as_bytes() != stripewise_store::copies::SYMBOL.to_bytes())
        .collect();
    assert!(extra.is_empty(), "exported, but not in the table: {extra:?}");
}

/// Symbols that are not in the module that their row names, each with the module.
fn symbols_without_wrapper(table: &[Group]) -> Vec<(&'static str, &'static str)> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut texts = BTreeMap::new();
    let mut missing = Vec::new();
    for group in table {
        let Some(module) = group.module else { continue };
        let text = texts.entry(module).or_insert_with(|| std::fs::read_to_string(sources.join(module)).unwrap());
        for symbol in group.symbols {
            let is_here = text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == *symbol);
            missing.extend((!is_here).then_some((*symbol, module)));
        }
    }
    missing
}

#[test]
fn the_sources_wrap_each_symbol_in_the_module_that_the_table_names() {
    assert_eq!(symbols_without_wrapper(TABLE), [], "not in that module");
}

/// A row without its function is reported by each test that holds the table to something else.
#[test]
fn a_row_makes_a_call_known_everywhere() {
    let row = |kind, module, treatment| Group { kind, module, treatment, symbols: &["dummy_call"] };
    let served = row("dummies", Some("posix/open.rs"), Treatment::Served);
    assert_eq!(symbols_without_wrapper(&[served]), [("dummy_call", "posix/open.rs")]);
    let served = [row("dummies", Some("posix/open.rs"), Treatment::Served)];
    assert!(wrapped_symbols(&served).contains("dummy_call"));
    assert!(!exported_functions(&support::library()).contains("dummy_call"), "it would be missed");
    assert!(documentation(&served, &[]).contains("## Served\n\n**dummies** (in `src/posix/open.rs`):\n`dummy_call`"));
    let refused = [row("dummies", Some("posix/open.rs"), Treatment::Refused("ENOSYS"))];
    assert!(documentation(&refused, &[]).contains("(ENOSYS; in `src/posix/open.rs`):\n`dummy_call`"));
    let harmless = [row("dummies", None, Treatment::Harmless("it does nothing"))];
    assert!(wrapped_symbols(&harmless).is_empty());
    assert!(documentation(&[], &harmless).contains("### Harmless\n\n**dummies** (it does nothing):\n`dummy_call`"));
}

/// Names of the kernel's calls in the header of this machine.
fn numbered_calls() -> BTreeSet<String> {
    let header = ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm-generic/unistd.h"]
        [usize::from(cfg!(target_arch = "aarch64"))];
    let text = std::fs::read_to_string(header).unwrap_or_else(|error| panic!("{header}: {error}; libc6-dev has it"));
    text.lines()
        .filter_map(|line| line.strip_prefix("#define __NR_")?.split_whitespace().next())
        .filter(|name| *name != "syscalls" && !name.starts_with("3264_"))
        .map(str::to_owned)
        .collect()
}

// Raw copy_file_range on a managed descriptor reached the stub once, and fsx looped for ever: nobody had asked what
// goes through `syscall`.
#[test]
fn every_system_call_of_the_kernel_is_classified() {
    let table: BTreeSet<&str> = NUMBERS.iter().flat_map(|group| group.symbols.iter().copied()).collect();
    assert_eq!(table.len(), NUMBERS.iter().map(|group| group.symbols.len()).sum::<usize>(), "a call stands twice");
    let unconcerned: BTreeSet<&str> = NUMBERS_UNCONCERNED.split_whitespace().collect();
    let both: Vec<_> = table.intersection(&unconcerned).collect();
    assert!(both.is_empty(), "in the table and among the unconcerned: {both:?}");
    let calls = numbered_calls();
    assert!(calls.contains("copy_file_range") && calls.len() > 250, "the header was not understood: {calls:?}");
    let is_the_lists_kernel = cfg!(target_arch = "x86_64") && !calls.contains("cachestat");
    let missing: Vec<&String> = calls
        .iter()
        .filter(|name| !table.contains(name.as_str()) && !unconcerned.contains(name.as_str()))
        .filter(|name| is_the_lists_kernel || SMELLS.iter().any(|smell| name.contains(smell)))
        .collect();
    assert!(missing.is_empty(), "not in NUMBERS of src/table.rs nor in tests/kernel-unconcerned.txt: {missing:?}");
}

#[test]
fn the_sources_serve_the_numbers_that_the_table_names() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/posix/number.rs");
    let text = std::fs::read_to_string(path).unwrap();
    let words = |prefix: &'static str| {
        text.split(|c: char| !c.is_alphanumeric() && c != '_').filter_map(move |word| word.strip_prefix(prefix))
    };
    // Those that is_rare() passes on.
    let passed: BTreeSet<&str> = ["futex", "gettid", "tgkill", "getrandom", "membarrier"].into();
    let found: BTreeSet<&str> = words("SYS_").filter(|name| !passed.contains(name)).collect();
    let wanted: BTreeSet<&str> = NUMBERS
        .iter()
        .filter(|group| !matches!(group.treatment, Treatment::Harmless(_)))
        .flat_map(|group| group.symbols.iter().copied())
        .collect();
    assert_eq!(found, wanted, "src/posix/number.rs, left, against NUMBERS of src/table.rs");
}

/// One list for each treatment of the table's groups, under headings of a level.
fn lists(text: &mut String, table: &[Group], heading: &str) {
    type Belongs = fn(&Treatment) -> bool;
    let parts: [(&str, Belongs); 3] = [
        ("Served", |treatment| matches!(treatment, Treatment::Served)),
        ("Refused on managed files", |treatment| matches!(treatment, Treatment::Refused(_))),
        ("Harmless", |treatment| matches!(treatment, Treatment::Harmless(_))),
    ];
    for (title, belongs) in parts {
        let _ = write!(text, "\n{heading} {title}\n");
        for group in table.iter().filter(|group| belongs(&group.treatment)) {
            let remark = match (&group.treatment, group.module) {
                (Treatment::Served, Some(module)) => format!("in `src/{module}`"),
                (Treatment::Refused(errno), Some(module)) => format!("{errno}; in `src/{module}`"),
                (Treatment::Harmless(reason), _) => (*reason).to_owned(),
                _ => String::new(),
            };
            let _ = write!(text, "\n**{}** ({remark}):\n", group.kind);
            let names: Vec<_> = group.symbols.iter().map(|symbol| format!("`{symbol}`")).collect();
            text.push_str(&names.join(" "));
            text.push('\n');
        }
    }
}

/// What the document says of calls that do not come by the name of a function of libc.
const BY_NUMBER: &str = "
## By number, and by patched functions

A program may make a system call by its number, through libc's `syscall`. The call then behaves as the function of its name, as listed below.

Communication libraries observe a process's mappings. UCX (which Debian's MPICH loads, and Open MPI with `pml=ucx`) and Open MPI's own
patcher replace the first instructions of `mmap`, `munmap` and their relations by a jump, in this library if it is loaded. Their hook makes
the call by `syscall(SYS_mmap, ...)`, and the library serves it there: a private mapping of a managed file is a copy, a shared one by a descriptor
that may write fails with `ENODEV`, and the registration cache works as without Stripewise. This needs no settings. `UCX_MEM_MMAP_HOOK_MODE=reloc` instead changes the
tables of loaded libraries. If UCX is linked to the program, it then calls libc's own `mmap` and bypasses any library before libc; `stripewise doctor`
reports that setting. (With Debian's MPICH that mode hangs, with or without Stripewise.)

The library cannot intercept a system call instruction in the program's own code; [semantics.md](semantics.md#what-is-not-seen) describes the effects.
";

fn documentation(table: &[Group], numbers: &[Group]) -> String {
    let mut text = String::from(
        "# Treatment of each call by the preload library\n\n\
         This page is generated from `crates/preload/src/table.rs`, and a test compares the two. A *served* call behaves on a managed file as on an\n\
         ordinary one. A *refused* call fails on a managed file with the given errno, as on a file system that does not support it.\n\
         A *harmless* call is not wrapped, for the given reason. Calls on unmanaged files always go to libc.\n",
    );
    lists(&mut text, table, "##");
    text.push_str(BY_NUMBER);
    lists(&mut text, numbers, "###");
    text.push_str(
        "\n## MPI\n\nAll reads and writes of MPI-IO with their large-count (`_c`) and OpenMPI's Fortran twins, and `MPI_File_open`, `close`, \
         `delete`,\n`set_size`, `preallocate`, `sync`, `set_view`, `seek`, `seek_shared`, `MPI_Init`, `MPI_Init_thread`: in `src/mpi/calls.rs`.\n",
    );
    text
}

#[test]
fn the_documentation_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/interposer.md");
    let wanted = documentation(TABLE, NUMBERS);
    if std::env::var_os("STRIPEWISE_WRITE_DOCS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/interposer.md differs from the table; write it again: STRIPEWISE_WRITE_DOCS=1 cargo test --workspace --test table"
    );
}
