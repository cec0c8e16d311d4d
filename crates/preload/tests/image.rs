//! What the library adds to a program before the program does anything.

#[path = "support/mod.rs"]
#[allow(unreachable_pub, reason = "each test uses a part")]
mod support;

use object::{Object, ObjectSection, SectionKind};

/// Zero bytes in the library's image. Each process has them in its address space and in its page tables when they are
/// touched, whether it uses a managed file or not; large tables are mapped when they are first needed (`mapped`).
const MAX_ZERO_BYTES: u64 = 1 << 20;

#[test]
fn the_image_holds_no_large_tables() {
    let bytes = std::fs::read(support::library()).unwrap();
    let image = object::File::parse(&*bytes).unwrap();
    let zero = image.sections().filter(|section| section.kind() == SectionKind::UninitializedData);
    let sizes: Vec<(String, u64)> = zero.map(|section| (section.name().unwrap().to_owned(), section.size())).collect();
    let sum: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    println!("zero-initialised data: {sum} bytes in {sizes:?}");
    assert!(sizes.iter().any(|(name, _)| name == ".bss"), "no .bss among {sizes:?}");
    assert!(
        sum <= MAX_ZERO_BYTES,
        "{sum} bytes of zero-initialised data, {MAX_ZERO_BYTES} are allowed; `nm -CS --size-sort` names the tables: {sizes:?}"
    );
}

/// Under a limit on address space that the table of descriptors does not fit, nothing is done, and the program runs.
#[test]
fn without_memory_for_the_table_nothing_is_done() {
    let directory = tempfile::tempdir().unwrap();
    // In KiB: the program and its libraries fit, the table of 8 MiB beside them does not.
    let limited = "ulimit -v 12288; exec \"$@\"";
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", limited, "limited", "/usr/bin/env"]);
    command.arg(format!("LD_PRELOAD={}", support::library().display()));
    command.arg(format!("STRIPEWISE_TRACE={}", directory.path().display()));
    command.args(["/bin/echo", "done"]);
    let output = support::run(&mut command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{said}");
    assert!(said.contains("no memory for the table of descriptors"), "{said}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{said}");
}

/// On standard error a line begins with the library's name; in a file it has the form of the broker's log.
#[test]
fn lines_have_time_process_and_level_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let run = |wish: &str| {
        let mut command = std::process::Command::new("/bin/true");
        command
            .env("LD_PRELOAD", support::library())
            .env("STRIPEWISE_STATE", "not\nabsolute")
            .env("STRIPEWISE_LOG", wish);
        let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let process = child.id();
        (process, String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap())
    };
    let message = "STRIPEWISE_STATE must be an absolute path, not not?absolute";
    assert_eq!(run("warn").1, format!("stripewise: {message}\n"));
    let (process, said) = run(&format!("warn:{}", log.display()));
    assert_eq!(said, "");
    let text = std::fs::read_to_string(log).unwrap();
    let (time, rest) = text.split_once(' ').unwrap();
    assert_eq!(rest, format!("{process} ERROR {message}\n"));
    let (seconds, milliseconds) = time.split_once('.').unwrap();
    assert!(seconds.parse::<u64>().unwrap() > 1_700_000_000 && milliseconds.len() == 3, "{time}");
}
