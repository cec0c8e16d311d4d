//! Renames of redirected programs, while repairs run and where no broker lives.

use super::settled::repair;
use crate::support::{Place, noise, preload};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

/// A repair between a rename and its word to the broker read the old bytes back in 29 of 9,600 renames.
#[test]
fn no_rename_over_a_file_is_undone_while_repairs_run() {
    preload();
    let place = Place::with_cluster();
    std::fs::create_dir(place.path("data")).unwrap();
    place.done(&["manage", "data"]);
    let program = "\
import os
for turn in range(120):
    text = b'%09d' % turn * 1000
    with open('data/new', 'wb') as new:
        new.write(text)
    os.rename('data/new', 'data/f')
    for _ in range(3):
        with open('data/f', 'rb') as f:
            read = f.read()
        assert read == text, (turn, read[:9])
";
    let mut run = place.command(&["run", "--", "python3", "-c", program]);
    let mut run = run.stderr(Stdio::piped()).spawn().unwrap();
    let mut repairs = 0;
    while run.try_wait().unwrap().is_none() {
        let said = place.say(&["check", "--repair"]);
        // The file that was just replaced may be seen before its data is freed; no stub is missed, moved or made.
        let is_fine = said.out.lines().all(|line| line.contains("the removed file"));
        assert!(said.status == 0 && is_fine, "{}{}", said.out, said.err);
        repairs += 1;
    }
    let ended = run.wait_with_output().unwrap();
    assert!(ended.status.success() && repairs > 0, "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(place.done(&["ls"]).matches("HERE/data/f").count(), 1, "one file is left");
    assert!(repair(&place, "at the end").out.is_empty());
}

/// Such a rename returned 0, and the next repair put the old file back.
#[test]
fn without_a_broker_a_managed_file_is_not_replaced_exchanged_or_removed() {
    preload();
    let place = Place::with_cluster();
    let (old, new) = (noise(100_000), vec![7; 50_000]);
    place.write("data", &old);
    place.write("ordinary", &new);
    place.done(&["cp", "--managed", "data", "f"]);
    place.done(&["cp", "--managed", "ordinary", "g"]);
    let program = "\
import os, sys, errno
open('f', 'rb').read(1)
os.write(1, b'ready\\n')
sys.stdin.readline()
for call in [lambda: os.rename('ordinary', 'f'), lambda: os.rename('g', 'f'), lambda: os.unlink('f')]:
    try:
        call()
        print('done')
    except OSError as error:
        print(errno.errorcode[error.errno])
os.rename('ordinary', 'ordinary.1')
os.unlink('ordinary.1')
";
    // The program outlives its `run`, which is its broker.
    let mut run = place.command(&["run", "--", "python3", "-c", program]);
    let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let input = run.stdin.take().unwrap();
    let mut output = std::io::BufReader::new(run.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    run.kill().unwrap();
    assert_eq!(run.wait().unwrap().signal(), Some(9));
    drop(input);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut output, &mut said).unwrap();
    assert_eq!(said, "EIO\nEIO\nEIO\n");
    assert!(repair(&place, "without a broker").out.is_empty());
    assert!(place.command(&["cat", "f"]).output().unwrap().stdout == old);
    assert!(place.command(&["cat", "g"]).output().unwrap().stdout == new);
    assert!(!place.path("ordinary").exists() && !place.path("ordinary.1").exists());
}

/// Both returned 0 and left two live files of the name, whose bytes a repair swapped.
#[test]
fn of_two_copies_to_one_new_name_one_is_left() {
    let place = Place::with_cluster();
    let contents = [noise(300_000), vec![1; 200_000]];
    place.write("x", &contents[0]);
    place.write("y", &contents[1]);
    for round in 0..4 {
        let name = format!("f{round}");
        let mut copies = ["x", "y"].map(|from| {
            let mut command = place.command(&["cp", "--managed", from, &name]);
            command.stderr(Stdio::null()).spawn().unwrap()
        });
        assert!(copies.iter_mut().any(|copy| copy.wait().unwrap().success()));
        copies.iter_mut().for_each(|copy| _ = copy.wait().unwrap());
        let held = place.command(&["cat", &name]).output().unwrap().stdout;
        assert!(contents.contains(&held), "round {round}");
        for _ in 0..2 {
            let said = place.say(&["check", "--repair"]);
            assert_eq!((said.status, said.out.as_str()), (0, ""), "round {round}: {}", said.err);
            assert!(place.command(&["cat", &name]).output().unwrap().stdout == held, "round {round}");
        }
        assert_eq!(place.done(&["ls"]).matches(&format!("HERE/{name}")).count(), 1, "round {round}");
    }
}
