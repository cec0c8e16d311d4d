//! What the head of a program's file says: a script and its interpreter, or machine code, and whether the preload library can be loaded into it.
//!
//! Read by the command before it starts a program and by the preload library before each `exec`, the latter perhaps in a child of `vfork`: so
//! nothing here allocates, and a head of a few KiB has to do.

use crate::common_memory::is_common_memory;
use object::elf;
use object::endian::{Endianness, U32};
use std::ops::Range;

/// How much of a file's start is looked at. Program headers and notes lie there in what linkers write.
pub const HEAD_BYTES: usize = 4096;

/// Room for a head, aligned as ELF headers are.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct HeadBuffer(pub [u8; HEAD_BYTES]);

impl HeadBuffer {
    /// All zeros: no head.
    #[must_use]
    pub const fn new() -> Self {
        Self([0; HEAD_BYTES])
    }
}

impl Default for HeadBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// How much of a script's start the kernel looks at.
const FIRST_LINE_BYTES: usize = 256;

/// Interpreters of interpreters that the kernel follows.
pub const MAX_INTERPRETERS: usize = 5;

/// What the kernel would make of a file's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Head {
    /// A first line that names an interpreter.
    Script(Script),
    /// Machine code in ELF.
    Elf,
    /// No first line and no ELF: `ENOEXEC`, whereupon shells read the file as their own script.
    Other,
}

/// The parts of a script's first line, as ranges of the head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// Its path, relative ones too.
    pub interpreter: Range<usize>,
    /// All that follows the interpreter, as one argument.
    pub argument: Option<Range<usize>>,
}

impl Head {
    /// Of the first bytes of a file, at most [`HEAD_BYTES`] of them.
    #[must_use]
    pub fn of(head: &[u8]) -> Self {
        if head.starts_with(&elf::ELFMAG) {
            Self::Elf
        } else if head.starts_with(b"#!") {
            script(&head[..head.len().min(FIRST_LINE_BYTES)]).map_or(Self::Other, Self::Script)
        } else {
            Self::Other
        }
    }
}

/// The first line as `fs/binfmt_script.c` reads it; none where the kernel says `ENOEXEC`.
fn script(head: &[u8]) -> Option<Script> {
    let is_blank = |byte: &&u8| matches!(**byte, b' ' | b'\t');
    // A zero byte ends the kernel's strings.
    let text_end = head.iter().position(|byte| *byte == 0).unwrap_or(head.len());
    let newline = head[..text_end].iter().position(|byte| *byte == b'\n');
    let end = newline.unwrap_or(text_end);
    let end = end - head[2..end].iter().rev().take_while(is_blank).count();
    let start = 2 + head[2..end].iter().take_while(is_blank).count();
    let length = head[start..end].iter().position(|byte| is_blank(&byte));
    // The line goes on beyond what was read, and so perhaps does the interpreter's name.
    if newline.is_none() && length.is_none() && head.len() == FIRST_LINE_BYTES && text_end == head.len() {
        return None;
    }
    let interpreter = start..length.map_or(end, |length| start + length);
    if interpreter.is_empty() {
        return None;
    }
    let rest = interpreter.end + head[interpreter.end..end].iter().take_while(is_blank).count();
    Some(Script { interpreter, argument: (rest < end).then_some(rest..end) })
}

/// Whether a file of this path is used past any library, and so is never managed for the sake of its directory: shared objects, which the loader opens
/// and maps itself, and the memory that SQLite's processes share beside a write-ahead log (`NAME-shm`), which holds nothing that outlives them.
#[must_use]
pub fn stays_ordinary(path: &[u8]) -> bool {
    is_shared_object(path) || is_common_memory(path)
}

/// Whether a file of this path is a shared object by its name (`NAME.so`, `NAME.so.1.2`). Loaders find such files by their own system calls.
#[must_use]
pub fn is_shared_object(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let version = name.iter().rev().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
    let stem = &name[..name.len() - version];
    let is_version = name[stem.len()..].split(|byte| *byte == b'.').skip(1).all(|number| !number.is_empty());
    stem.len() > 3 && stem.ends_with(b".so") && is_version && name.get(stem.len()).is_none_or(|byte| *byte == b'.')
}

/// Why the preload library is not loaded into a program, or sees nothing of what it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// Without a loader nothing is preloaded.
    Static,
    /// It is loaded and sees no call.
    Go,
    /// Its loader is not glibc's.
    Loader,
    /// The library is built for one machine only.
    Machine,
    /// The kernel runs it in secure mode.
    SetUser,
    /// The kernel runs it in secure mode.
    SetGroup,
    /// The kernel runs it in secure mode.
    Capabilities,
}

impl Obstacle {
    /// What the program is, to follow its name.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::Static => "is linked statically: no library can be loaded into it",
            Self::Go => "is a Go program: it makes its own system calls",
            Self::Loader => "uses a loader that is not glibc's",
            Self::Machine => "is built for another machine; 32-bit programs are not supported",
            Self::SetUser => "is setuid: the loader ignores LD_PRELOAD",
            Self::SetGroup => "is setgid: the loader ignores LD_PRELOAD",
            Self::Capabilities => "has file capabilities: the loader ignores LD_PRELOAD",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Static => "link it dynamically (without -static)",
            Self::Go => "read and write through `stripewise cat` and `cp`",
            Self::Loader => "build it against glibc",
            Self::Machine => "build it for this machine",
            Self::SetUser | Self::SetGroup => "run a copy without that privilege, or run it as that user",
            Self::Capabilities => "run a copy without them (setcap -r)",
        }
    }

    /// The command that mounts a directory so that the program can use it. A mount serves the one who made it, by all ids of a process, unless it lets others in.
    #[must_use]
    pub fn mount(self) -> &'static str {
        match self {
            Self::SetUser | Self::SetGroup => "stripewise mount DIR --allow-other",
            Self::Static | Self::Go | Self::Loader | Self::Machine | Self::Capabilities => "stripewise mount DIR",
        }
    }
}

/// Why the preload library cannot be loaded into the ELF file of this head (in a [`HeadBuffer`]); none when the head shows nothing of the kind, or is
/// no ELF file's.
#[must_use]
pub fn obstacle_in(head: &[u8]) -> Option<Obstacle> {
    if !head.starts_with(&elf::ELFMAG) {
        return None;
    }
    let (header, _) = object::pod::from_bytes::<elf::FileHeader64<Endianness>>(head).ok()?;
    let endian = match header.e_ident.data {
        elf::ELFDATA2LSB => Endianness::Little,
        _ => Endianness::Big,
    };
    let is_own_order = endian == Endianness::default();
    if header.e_ident.class != elf::ELFCLASS64 || !is_own_order || header.e_machine.get(endian) != MACHINE {
        return Some(Obstacle::Machine);
    }
    let start = usize::try_from(header.e_phoff.get(endian)).ok()?;
    let count = usize::from(header.e_phnum.get(endian));
    // A table beyond the head was moved there by a tool: it is not to be told from here.
    let (segments, _) =
        object::pod::slice_from_bytes::<elf::ProgramHeader64<Endianness>>(head.get(start..)?, count).ok()?;
    let content = |segment: &elf::ProgramHeader64<Endianness>| {
        let start = usize::try_from(segment.p_offset.get(endian)).ok()?;
        let length = usize::try_from(segment.p_filesz.get(endian)).ok()?;
        head.get(start..)?.get(..length.min(head.len().saturating_sub(start)))
    };
    let of_kind = |kind| segments.iter().find(|segment| segment.p_type.get(endian) == kind);
    let Some(loader) = of_kind(elf::PT_INTERP) else {
        return Some(Obstacle::Static);
    };
    if content(loader).is_some_and(|path| !is_glibc_loader(path)) {
        return Some(Obstacle::Loader);
    }
    let mut notes = segments.iter().filter(|segment| segment.p_type.get(endian) == elf::PT_NOTE);
    notes.any(|note| content(note).is_some_and(|notes| is_of_go(notes, endian))).then_some(Obstacle::Go)
}

const MACHINE: elf::Machine = if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };

/// Whether a loader, with or without the zero byte behind its path, is glibc's.
#[must_use]
pub fn is_glibc_loader(path: &[u8]) -> bool {
    let path = path.split(|byte| *byte == 0).next().unwrap_or(path);
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path).starts_with(b"ld-linux")
}

/// Whether a segment of notes holds Go's build id.
fn is_of_go(mut notes: &[u8], endian: Endianness) -> bool {
    const BUILD_ID: u32 = 4;
    while let Ok((header, rest)) = object::pod::from_bytes::<elf::NoteHeader32<Endianness>>(notes) {
        let padded = |word: &U32<Endianness>| (word.get(endian) as usize).saturating_add(3) & !3;
        let Some(name) = rest.get(..header.n_namesz.get(endian) as usize) else { return false };
        if name.starts_with(b"Go\0") && header.n_type.get(endian).0 == BUILD_ID {
            return true;
        }
        let Some(next) = rest.get(padded(&header.n_namesz).saturating_add(padded(&header.n_descsz))..) else {
            return false;
        };
        notes = next;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Option<(&str, Option<&str>)> {
        let text = |range: Range<usize>| std::str::from_utf8(&line[range]).unwrap();
        match Head::of(line) {
            Head::Script(script) => Some((text(script.interpreter), script.argument.map(text))),
            _ => None,
        }
    }

    #[test]
    fn first_lines_are_read_as_the_kernel_reads_them() {
        assert_eq!(words(b"#!/bin/sh\necho"), Some(("/bin/sh", None)));
        assert_eq!(words(b"#! \t/usr/bin/env  python3 -u \t\n"), Some(("/usr/bin/env", Some("python3 -u"))));
        assert_eq!(words(b"#!/bin/sh"), Some(("/bin/sh", None)), "a file that ends in its first line");
        assert_eq!(words(b"#!/bin/sh -e\0x\n"), Some(("/bin/sh", Some("-e"))));
        for none in [&b"#!\n"[..], b"#!  \t \n", b"#!", b"#", b"", b"echo\n", b"\x7fEL"] {
            assert_eq!(words(none), None, "{none:?}");
        }
        let long = |name: usize, rest: &str| [b"#!/", "n".repeat(name).as_bytes(), rest.as_bytes()].concat();
        assert_eq!(words(&long(252, "\n")).unwrap().0.len(), 253);
        assert_eq!(words(&long(300, "\n")), None, "the name may go on where the kernel does not look");
        let truncated = long(200, &format!(" {}", "a".repeat(100)));
        assert_eq!(words(&truncated).unwrap().1.unwrap().len(), 256 - 204, "an argument is cut there");
    }

    #[test]
    fn shared_objects_are_told_by_their_names() {
        for name in ["libm.so", "/a/b/libm.so.6", "libstdc++.so.6.0.30", "_ssl.cpython-311-x86_64-linux-gnu.so"] {
            assert!(is_shared_object(name.as_bytes()), "{name}");
        }
        for name in ["so", ".so", "a.so/b", "x.so.", "x.so.1.", "x.so1", "x.so.gz", "x.so.1a", "x.sof", "", "lib.so.1/"]
        {
            assert!(!is_shared_object(name.as_bytes()), "{name}");
        }
    }

    fn own_head() -> Box<HeadBuffer> {
        let mut head = Box::new(HeadBuffer::new());
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        head.0.copy_from_slice(&bytes[..HEAD_BYTES]);
        head
    }

    /// Where the program header of a kind starts.
    fn segment(head: &HeadBuffer, kind: u32) -> usize {
        let word = |at: usize| u32::from_le_bytes(head.0[at..at + 4].try_into().unwrap());
        (0..).map(|index| 64 + 56 * index).find(|at| word(*at) == kind).unwrap()
    }

    #[test]
    fn what_keeps_the_library_out_of_a_program_is_seen_in_its_head() {
        assert_eq!(Head::of(&own_head().0), Head::Elf);
        assert_eq!(obstacle_in(&own_head().0), None);
        let mut other = own_head();
        other.0[18] = 3;
        assert_eq!(obstacle_in(&other.0), Some(Obstacle::Machine));
        let mut narrow = own_head();
        narrow.0[4] = 1;
        assert_eq!(obstacle_in(&narrow.0), Some(Obstacle::Machine));
        let mut without_loader = own_head();
        let at = segment(&without_loader, 3);
        without_loader.0[at] = 0;
        assert_eq!(obstacle_in(&without_loader.0), Some(Obstacle::Static));
        let mut musl = own_head();
        let start = musl.0.windows(8).position(|bytes| bytes == b"ld-linux").unwrap();
        musl.0[start..start + 8].copy_from_slice(b"ld-musl-");
        assert_eq!(obstacle_in(&musl.0), Some(Obstacle::Loader));
        // Of notes the first: its name and type become Go's.
        let mut go = own_head();
        let at = segment(&go, 4);
        let note = usize::from(u16::from_le_bytes([go.0[at + 8], go.0[at + 9]]));
        go.0[note + 8..note + 16].copy_from_slice(b"\x04\0\0\0Go\0\0");
        assert_eq!(obstacle_in(&go.0), Some(Obstacle::Go));
    }

    /// A script without `#!` was a program of another machine, if it was as long as an ELF header.
    #[test]
    fn a_text_is_no_program_of_another_machine() {
        let mut head = Box::new(HeadBuffer::new());
        for text in
            ["echo of a script that names no interpreter, which is longer than an ELF header\n", &"\0".repeat(64)]
        {
            head.0[..text.len()].copy_from_slice(text.as_bytes());
            for length in [63, 64, text.len(), HEAD_BYTES] {
                assert_eq!(obstacle_in(&head.0[..length]), None, "{text:?} {length}");
            }
        }
    }

    #[test]
    fn no_head_however_damaged_is_read_beyond_its_end() {
        let head = own_head();
        for length in 0..600 {
            let _ = (Head::of(&head.0[..length]), obstacle_in(&head.0[..length]));
        }
        for at in 0..1024 {
            let mut damaged = own_head();
            damaged.0[at] ^= 0xff;
            let _ = (Head::of(&damaged.0), obstacle_in(&damaged.0));
        }
    }
}
