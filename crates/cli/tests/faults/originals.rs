//! Files that `apply` must not take, or must give up: nothing of them changes.

use crate::driver::Driver;
use crate::plans::{at_work, names, place_with_plan, plan, slow_place};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

#[test]
fn a_file_that_is_open_elsewhere_is_not_taken() {
    let (place, data) = slow_place();
    let before = names(&place);
    let holder = std::fs::File::options().write(true).open(place.path("data")).unwrap();
    let own = format!("(process {})", std::process::id());
    for words in [&["apply", "plan.json"][..], &["apply", "plan.json", "--dry-run"]] {
        let said = place.say(words);
        assert_eq!(said.status, 2);
        assert!(
            said.err.contains("HERE/data is open elsewhere")
                && said.err.contains(&own)
                && said.err.contains("close it there"),
            "{}",
            said.err
        );
        assert!(names(&place) == before && place.read("data") == data);
    }
    drop(holder);
    place.done(&["apply", "plan.json", "--dry-run"]);
    assert_eq!(names(&place), before);
}

#[test]
fn a_file_that_is_opened_while_it_is_copied_is_given_up() {
    let (place, data) = slow_place();
    let before = names(&place);
    let child = at_work(&place, &["apply", "plan.json"]);
    // Not waited for: with a lease, such an open fails and tells the holder.
    let opened = std::fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(place.path("data"));
    assert_eq!(opened.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    let said = place.said(child.wait_with_output().unwrap());
    assert_eq!(said.status, 2);
    assert_eq!(
        said.err,
        "stripewise apply: HERE/data was opened or changed by another program meanwhile; nothing was changed, repeat when it is quiet\n"
    );
    assert!(names(&place) == before && place.read("data") == data);
    assert_eq!(place.json(&["ls"])["files"].as_array().unwrap().len(), 0);
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn what_is_no_plain_file_is_refused() {
    let place = place_with_plan();
    let data = place.read("data");
    let chmod = |name: &str, mode| {
        std::fs::set_permissions(place.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    place.write("set-id", &data);
    chmod("set-id", 0o4755);
    place.write("set-gid", &data);
    chmod("set-gid", 0o2755);
    place.write("linked", &data);
    std::fs::hard_link(place.path("linked"), place.path("link")).unwrap();
    std::fs::create_dir(place.path("directory")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(place.path("fifo")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(place.path("socket")).unwrap();
    let before = names(&place);
    for (name, expected) in [
        ("set-id", "HERE/set-id is set-user-id or set-group-id"),
        ("set-gid", "HERE/set-gid is set-user-id or set-group-id"),
        (
            "linked",
            "HERE/linked has 2 names (hard links), of which the others would keep the old data; let symbolic links take their places first",
        ),
        ("directory", "HERE/directory is a directory; only regular files can be managed"),
        ("fifo", "HERE/fifo is a FIFO; only regular files can be managed"),
        ("socket", "HERE/socket is a socket; only regular files can be managed"),
    ] {
        // With a good file before it: every file is looked at before the first is touched.
        let mut both = plan(&place, "data");
        let bad = plan(&place, name)["files"][0].clone();
        both["files"].as_array_mut().unwrap().push(bad);
        place.write("plan.json", both.to_string().as_bytes());
        for words in [&["apply", "plan.json"][..], &["apply", "plan.json", "--dry-run"]] {
            let said = place.say(words);
            assert_eq!(said.status, 2, "{name}");
            assert!(said.err.contains(expected), "{name}: {}", said.err);
        }
        assert!(place.read("data") == data && names(&place) == before, "{name}");
    }
    assert!(place.read("set-id") == data && place.read("linked") == data);
    assert_eq!(place.path("set-id").metadata().unwrap().permissions().mode() & 0o7777, 0o4755);
    assert_eq!(place.json(&["ls"])["files"].as_array().unwrap().len(), 0);
}

#[test]
fn a_symbolic_link_leads_to_the_file_and_stays_a_link() {
    let place = place_with_plan();
    let data = place.read("data");
    std::os::unix::fs::symlink("data", place.path("link")).unwrap();
    let mut through = plan(&place, "data");
    through["files"][0]["path"] = place.path("link").to_str().unwrap().into();
    place.write("plan.json", through.to_string().as_bytes());
    place.done(&["apply", "plan.json"]);
    assert!(place.path("link").symlink_metadata().unwrap().is_symlink());
    assert!(place.read("data").starts_with(b"stripewise stub"));
    assert!(place.command(&["cat", "link"]).output().unwrap().stdout == data);
    place.done(&["release", "link"]);
    assert!(place.path("link").symlink_metadata().unwrap().is_symlink());
    assert!(!place.path("data").symlink_metadata().unwrap().is_symlink() && place.read("data") == data);
}

#[test]
fn a_second_apply_of_the_same_file_is_refused() {
    let (place, data) = slow_place();
    let before = names(&place);
    let first = at_work(&place, &["apply", "plan.json"]);
    let second = place.say(&["apply", "plan.json"]);
    assert_eq!(second.status, 2);
    assert!(second.err.contains("HERE/data is open elsewhere"), "{}", second.err);
    assert!(second.err.contains(&format!("(process {})", first.id())), "{}", second.err);
    // Not disturbed by the second's try.
    assert_eq!(first.wait_with_output().unwrap().status.code(), Some(0));
    place.done(&["release", "data"]);
    assert!(place.read("data") == data && names(&place) == before);
}

#[test]
fn release_refuses_a_file_that_a_program_has_open() {
    let place = place_with_plan();
    let data = place.read("data");
    place.done(&["apply", "plan.json"]);
    let mut driver = Driver::start(&place, &[]);
    assert_eq!(driver.ask("(f := os.open('data', os.O_RDWR)) >= 0"), "True");
    let said = place.say(&["release", "data"]);
    assert_eq!(said.status, 2);
    let holder = format!("HERE/data is open elsewhere (process {}); close it there and repeat", driver.process);
    assert!(said.err.contains(&holder), "{}", said.err);
    assert_eq!(driver.ask("os.pwrite(f, b'still mine', 0)"), "10");
    assert_eq!(driver.ask("os.close(f)"), "None");
    place.done(&["release", "data"]);
    assert!(place.read("data")[..10] == *b"still mine" && place.read("data")[10..] == data[10..]);
    assert_eq!(driver.ask("open('data', 'rb').read(10)"), "b'still mine'", "an ordinary file in the same program");
    assert!(driver.end().status.success());
}
