//! Programs that the library could not serve: static ones, and those with an io_uring.

use crate::bed::{Mounted, place};
use std::process::{Command, Output};

/// Writes 5 MiB, punches and zeroes, and says what it sees.
const STATIC_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char bytes[5 << 20], seen[5 << 20], zeros[5 << 20];

int main(int count, char **words)
{
    struct stat found;
    int file = open(words[1], O_RDWR | O_CREAT, 0644);
    memset(bytes, 'b', sizeof bytes);
    printf("%zd ", pwrite(file, bytes, sizeof bytes, 0));
    /* Over the end of a region, of another, and of the file. */
    int punched = fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1000000, 2500000);
    punched |= fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, sizeof bytes - 5, 1 << 20);
    printf("%d ", punched);
    memset(bytes + 1000000, 0, 2500000);
    memset(bytes + sizeof bytes - 5, 0, 5);
    printf("%d ", pread(file, seen, sizeof seen, 0) == sizeof seen && memcmp(seen, bytes, sizeof seen) == 0);
    fstat(file, &found);
    printf("%lld ", (long long)found.st_size);
    printf("%d ", fallocate(file, FALLOC_FL_ZERO_RANGE, 4000000, 3000000));
    fstat(file, &found);
    printf("%lld ", (long long)found.st_size);
    printf("%d ", pread(file, seen, 3000000, 4000000) == 3000000 && memcmp(seen, zeros, 3000000) == 0);
    printf("%d ", fallocate(file, FALLOC_FL_COLLAPSE_RANGE, 0, 4096) == -1 && errno == EOPNOTSUPP);
    printf("%d\n", open(".", O_RDWR | O_TMPFILE, 0600) == -1 && errno == EOPNOTSUPP);
    return fsync(file);
}
"#;

#[test]
fn holes_are_punched_by_the_mount_and_a_static_program_sees_them() {
    let Some(place) = place() else { return };
    place.write("program.c", STATIC_PROGRAM.as_bytes());
    let words = ["-static", "-O1", "-o", "program", "program.c"];
    let compiled = Command::new("cc").args(words).current_dir(place.path("")).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let mounted = Mounted::start(&place, &[]);
    let ran = Command::new(place.path("program")).arg("file").current_dir(mounted.path("")).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "5242880 0 1 5242880 0 7000000 1 1 1\n");
    let mut expected = vec![b'b'; 1_000_000];
    expected.resize(3_500_000, 0);
    expected.resize(4_000_000, b'b');
    expected.resize(7_000_000, 0);
    assert!(place.command(&["cat", "data/file"]).output().unwrap().stdout == expected);
    mounted.interrupt();
}

/// Each changes `one` to `two` in its own way: by a new file and renames, by a copy aside, or in place.
const EDITORS: [(&str, &str); 3] = [
    ("vim", "vim -es -u NONE -i NONE -c %s/one/two/ -c wq \"$0\""),
    ("ed", "printf ',s/one/two/\\nw\\nq\\n' | ed -s \"$0\""),
    ("sed", "sed -i s/one/two/ \"$0\""),
];

#[test]
fn editors_change_managed_files_by_the_mount() {
    let Some(place) = place() else { return };
    let mounted = Mounted::start(&place, &[]);
    for (editor, script) in EDITORS {
        if Command::new("which").arg(editor).output().is_ok_and(|found| !found.status.success()) {
            eprintln!("SKIPPED: there is no {editor}");
            continue;
        }
        let path = mounted.path(editor);
        std::fs::write(&path, "one\nend\n").unwrap();
        let edited = Command::new("sh").args(["-c", script]).arg(&path).output().unwrap();
        assert!(edited.status.success(), "{editor}: {edited:?}");
        let name = format!("data/{editor}");
        assert!(place.read(&name).starts_with(b"stripewise stub 1\n"), "{editor}: it is managed");
        assert_eq!(place.command(&["cat", &name]).output().unwrap().stdout, b"two\nend\n", "{editor}");
    }
    let left: Vec<_> = std::fs::read_dir(mounted.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.len() <= EDITORS.len(), "{left:?}");
    mounted.interrupt();
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn a_program_with_an_io_uring_reads_what_it_wrote_by_the_mount() {
    let Some(place) = place() else { return };
    let fio = |file: &str, words: &[&str]| -> Option<Output> {
        let always = ["--name=job", "--ioengine=io_uring", "--size=4M", "--iodepth=16", "--randseed=1", "--eta=never"];
        let verify = ["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--fallocate=none"];
        let mut command = Command::new("fio");
        command.args(always).args(verify).args(words).arg(format!("--filename={file}")).current_dir(place.path(""));
        command.output().ok()
    };
    match fio("ordinary", &["--rw=write", "--bs=64k"]) {
        None => return eprintln!("SKIPPED: there is no fio: setup/install installs it"),
        Some(output) if !output.status.success() => {
            return eprintln!("SKIPPED: no io_uring here: {}", String::from_utf8_lossy(&output.stderr));
        }
        Some(_) => {}
    }
    let mounted = Mounted::start(&place, &[]);
    for words in [
        &["--rw=randwrite", "--bs=16k"][..],
        &["--rw=randwrite", "--bs=4k", "--direct=1"],
        &["--rw=randrw", "--bsrange=4k-256k", "--fsync=16"],
    ] {
        let output = fio("data.mount/file", words).unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
    assert!(place.read("data/file").starts_with(b"stripewise stub 1\n"), "it is managed");
    let seen = std::fs::read(mounted.path("file")).unwrap();
    assert!(seen.len() == 4 << 20 && place.command(&["cat", "data/file"]).output().unwrap().stdout == seen);
    mounted.interrupt();
}
