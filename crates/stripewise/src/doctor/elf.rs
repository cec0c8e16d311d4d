//! What an ELF program says of itself: its machine, its loader, the libraries and functions it wants, and system calls of its own.

use object::elf;
use object::read::elf::{ElfFile32, ElfFile64, FileHeader};
use object::{Architecture, Object, ObjectSection, ObjectSymbol, SectionKind};
use std::path::{Path, PathBuf};

/// What matters of a program or library; owned, so that the file's bytes can go.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) architecture: Option<Architecture>,
    /// The loader; none in a static program.
    pub(super) loader: Option<PathBuf>,
    pub(super) needed: Vec<String>,
    pub(super) imports: Vec<String>,
    pub(super) is_go: bool,
    /// File calls that the program makes without libc, by name, with how often their pattern occurs.
    pub(super) raw_calls: Vec<(&'static str, usize)>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ElfError {
    #[error("cannot be read: {0}")]
    Read(#[from] std::io::Error),
    #[error("is a damaged ELF file: {0}")]
    Damaged(#[from] object::Error),
}

/// Reads the file at `path`, which must start as ELF files do.
pub(super) fn read(path: &Path) -> Result<Facts, ElfError> {
    let bytes = std::fs::read(path)?;
    match bytes.get(4) {
        Some(class) if *class == elf::ELFCLASS32.0 => facts(&ElfFile32::<object::Endianness>::parse(&*bytes)?, &bytes),
        _ => facts(&ElfFile64::<object::Endianness>::parse(&*bytes)?, &bytes),
    }
}

fn facts<'data, E: FileHeader<Endian = object::Endianness>>(
    file: &object::read::elf::ElfFile<'data, E>,
    bytes: &'data [u8],
) -> Result<Facts, ElfError> {
    use object::read::elf::{Dyn as _, ProgramHeader as _};
    let endian = file.endian();
    let mut found = Facts { architecture: Some(file.architecture()), ..Facts::default() };
    for segment in file.elf_program_headers() {
        if let Some(loader) = segment.interpreter(endian, bytes)? {
            found.loader = Some(PathBuf::from(String::from_utf8_lossy(loader).into_owned()));
        }
    }
    let sections = file.elf_section_table();
    if let Some((entries, strings_index)) = sections.dynamic(endian, bytes)? {
        let strings = sections.strings(endian, bytes, strings_index)?;
        for entry in entries {
            if entry.tag(endian) == elf::DT_NEEDED
                && let Ok(name) = entry.string(endian, strings)
            {
                found.needed.push(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    found.imports = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_undefined())
        .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
        .collect();
    found.is_go = file.section_by_name(".go.buildinfo").is_some() || file.section_by_name(".gopclntab").is_some();
    if file.architecture() == Architecture::X86_64 {
        let code = file.sections().filter(|section| section.kind() == SectionKind::Text);
        found.raw_calls = raw_calls(code.filter_map(|section| section.data().ok()));
    }
    Ok(found)
}

/// Numbers of x86-64 Linux that move a file's bytes or open it.
const FILE_CALLS: [(u32, &str); 14] = [
    (0, "read"),
    (1, "write"),
    (2, "open"),
    (9, "mmap"),
    (17, "pread64"),
    (18, "pwrite64"),
    (19, "readv"),
    (20, "writev"),
    (209, "io_submit"),
    (257, "openat"),
    (295, "preadv"),
    (296, "pwritev"),
    (326, "copy_file_range"),
    (425, "io_uring_setup"),
];

/// How far before `syscall` the number is looked for.
const NUMBER_WITHIN_BYTES: usize = 24;

/// Finds `mov eax, NUMBER` (or `xor eax, eax` for 0) shortly before `syscall`. A pattern, not a disassembly: it can miss calls whose
/// number is computed, and constants in code can look like it, which is why it only ever makes a warning.
fn raw_calls<'a>(sections: impl Iterator<Item = &'a [u8]>) -> Vec<(&'static str, usize)> {
    let mut counts = [0usize; FILE_CALLS.len()];
    for code in sections {
        for at in 0..code.len().saturating_sub(1) {
            if code[at..at + 2] != [0x0f, 0x05] || !result_is_used(&code[at + 2..]) {
                continue;
            }
            let before = &code[at.saturating_sub(NUMBER_WITHIN_BYTES)..at];
            let number = (0..before.len()).rev().find_map(|start| match before[start..] {
                [0xb8, a, b, c, d, ..] => Some(u32::from_le_bytes([a, b, c, d])),
                [0x31, 0xc0, ..] => Some(0),
                _ => None,
            });
            if let Some(index) = number.and_then(|number| FILE_CALLS.iter().position(|(known, _)| *known == number)) {
                counts[index] += 1;
            }
        }
    }
    FILE_CALLS.iter().zip(counts).filter(|(_, count)| *count > 0).map(|((_, name), count)| (*name, count)).collect()
}

/// Whether the instructions after a system call look at its result, as they do in code and hardly ever in chance bytes.
fn result_is_used(after: &[u8]) -> bool {
    let starts: [&[u8]; 8] = [
        &[0x48, 0x3d],       // cmp rax, imm32
        &[0x48, 0x89],       // mov r64, r64
        &[0x49, 0x89],       // mov r64, rax
        &[0x48, 0x63],       // movsxd
        &[0x48, 0x85, 0xc0], // test rax, rax
        &[0x85, 0xc0],       // test eax, eax
        &[0x89],             // mov r32, eax
        &[0xc3],             // ret
    ];
    starts.iter().any(|start| after.starts_with(start))
}

/// That of this machine.
pub(super) const HOST: Architecture = if cfg!(target_arch = "x86_64") {
    Architecture::X86_64
} else if cfg!(target_arch = "aarch64") {
    Architecture::Aarch64
} else {
    Architecture::Unknown
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_calls_are_found_with_their_numbers() {
        let pread = [0xb8, 17, 0, 0, 0, 0x48, 0x89, 0xfe, 0x0f, 0x05, 0xc3];
        let read = [0x31, 0xc0, 0x0f, 0x05, 0x85, 0xc0];
        let exit = [0xb8, 60, 0, 0, 0, 0x0f, 0x05, 0xc3];
        assert_eq!(raw_calls([&pread[..], &read, &exit].into_iter()), [("read", 1), ("pread64", 1)]);
        assert_eq!(raw_calls([&[0x0f, 0x05, 0xc3][..], &[0x31, 0xc0, 0x0f, 0x05, 0x77], &[0x0f]].into_iter()), []);
    }

    #[test]
    fn this_program_is_read_as_it_is() {
        let facts = read(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(facts.architecture, Some(HOST));
        assert!(facts.loader.is_some_and(|loader| loader.exists()));
        assert!(facts.needed.iter().any(|name| name.starts_with("libc.so")), "{:?}", facts.needed);
        assert!(!facts.imports.is_empty() && !facts.is_go);
    }
}
