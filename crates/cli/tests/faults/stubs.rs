//! What programs that know nothing of Stripewise do to stubs.

use crate::driver::Driver;
use crate::support::{Place, noise, preload};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A managed file `managed` of 3 MiB.
pub(crate) fn managed() -> (Place, Vec<u8>) {
    preload();
    let place = Place::with_cluster();
    let data = noise(3 << 20);
    place.write("data", &data);
    place.done(&["cp", "--managed", "data", "managed"]);
    (place, data)
}

pub(crate) fn cat(place: &Place, name: &str) -> Vec<u8> {
    let said = place.command(&["run", "--", "cat", name]).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    said.stdout
}

/// Every object on every server.
fn objects(place: &Place) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for server in ["h0", "h1", "s0", "s1"] {
        for file in std::fs::read_dir(place.path(server).join("stripewise-objects")).unwrap() {
            found.extend(std::fs::read_dir(file.unwrap().path()).unwrap().map(|object| object.unwrap().path()));
        }
    }
    found.sort();
    found
}

#[test]
fn a_stub_that_was_written_over_is_restored_and_the_other_text_kept() {
    let (place, data) = managed();
    let before = objects(&place);
    let stub = place.read("managed");
    let inode = place.path("managed").metadata().unwrap().ino();
    // As an editor or `cat >` does: the same inode, another text.
    let mut file = std::fs::File::options().write(true).truncate(true).open(place.path("managed")).unwrap();
    file.write_all(b"what a backup wrote").unwrap();
    drop(file);
    let found = place.say(&["check"]);
    assert_eq!(found.status, 1, "{}{}", found.out, found.err);
    assert!(found.out.contains("the stub HERE/managed was overwritten; the data of the managed file is whole"));
    assert_eq!(place.read("managed"), b"what a backup wrote", "without --repair nothing changes");
    let repaired = place.say(&["check", "--repair"]);
    assert_eq!(repaired.status, 0, "{}{}", repaired.out, repaired.err);
    assert_eq!((place.read("managed"), place.path("managed").metadata().unwrap().ino()), (stub, inode));
    assert_eq!(place.read("managed.before-check"), b"what a backup wrote");
    assert!(cat(&place, "managed") == data && objects(&place) == before);
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn a_copy_of_a_stub_is_refused_in_a_redirected_program() {
    let (place, data) = managed();
    std::fs::copy(place.path("managed"), place.path("copy")).unwrap();
    let mut driver = Driver::start(&place, &[]);
    for step in
        ["open('copy', 'rb').read()", "os.read(os.open('copy', os.O_RDONLY), 10)", "open('copy', 'r+b').write(b'x')"]
    {
        assert_eq!(driver.ask(step), "ESTALE", "{step}");
    }
    assert_eq!(driver.ask("len(open('managed', 'rb').read())"), data.len().to_string(), "the file itself is served");
    let said = String::from_utf8(driver.end().stderr).unwrap();
    assert!(said.contains("copy") && said.contains("stripewise check"), "{said}");
    assert!(place.read("copy") == place.read("managed"), "the copy is not written to");
    assert!(cat(&place, "managed") == data);
}

#[test]
fn a_moved_stub_works() {
    let (place, data) = managed();
    let before = objects(&place);
    std::fs::create_dir(place.path("below")).unwrap();
    std::fs::rename(place.path("managed"), place.path("below/moved")).unwrap();
    assert!(cat(&place, "below/moved") == data);
    assert!(place.command(&["cat", "below/moved"]).output().unwrap().stdout == data);
    let checked = place.say(&["check", "--repair"]);
    assert_eq!(checked.status, 0, "{}{}", checked.out, checked.err);
    assert!(!place.path("managed").exists(), "no second stub appears where the first one stood");
    assert!(cat(&place, "below/moved") == data && objects(&place) == before);
    place.done(&["release", "below/moved"]);
    assert!(place.read("below/moved") == data && objects(&place).is_empty());
}

#[test]
fn a_stub_that_was_removed_is_found_and_its_data_kept_until_told() {
    let (place, data) = managed();
    let before = objects(&place);
    std::fs::remove_file(place.path("managed")).unwrap();
    let found = place.say(&["check"]);
    assert_eq!(found.status, 1);
    assert!(
        found.out.contains("the stub HERE/managed is gone")
            && found.out.contains("to free the data, use `stripewise rm --id"),
        "{}",
        found.out
    );
    assert!(objects(&place) == before && !place.path("managed").exists());
    let repaired = place.say(&["check", "--repair"]);
    assert_eq!(repaired.status, 0, "{}{}", repaired.out, repaired.err);
    assert!(cat(&place, "managed") == data, "the data was whole all along");
    place.done(&["rm", "managed"]);
    assert_eq!(objects(&place), Vec::<PathBuf>::new());
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn objects_of_no_file_are_found_and_freed() {
    let (place, data) = managed();
    let before = objects(&place);
    // What a server directory put back from an old backup holds: a file that is no more.
    place.done(&["cp", "--managed", "data", "second"]);
    let of_second: Vec<PathBuf> = objects(&place).into_iter().filter(|object| !before.contains(object)).collect();
    let kept: Vec<(PathBuf, Vec<u8>)> =
        of_second.iter().map(|object| (object.clone(), std::fs::read(object).unwrap())).collect();
    place.done(&["rm", "second"]);
    assert!(objects(&place) == before);
    for (object, bytes) in kept {
        std::fs::create_dir_all(object.parent().unwrap()).unwrap();
        std::fs::write(object, bytes).unwrap();
    }
    let found = place.say(&["check"]);
    assert_eq!(found.status, 1);
    assert!(found.out.contains("holds objects of 1 files that are not in the mapping table"), "{}", found.out);
    let repaired = place.say(&["check", "--repair"]);
    assert_eq!(repaired.status, 0, "{}{}", repaired.out, repaired.err);
    assert!(objects(&place) == before && cat(&place, "managed") == data);
}

/// A stub that was cut or written over was taken for an ordinary file: programs read nothing, or the text.
#[test]
fn a_stub_that_was_cut_or_written_over_still_is_its_file() {
    let (place, data) = managed();
    place.done(&["cp", "--managed", "data", "other"]);
    let other = place.read("other");
    for text in [&b""[..], b"some text", &[b'x'; 1021], &noise(5000), &other] {
        std::fs::write(place.path("managed"), text).unwrap();
        assert!(cat(&place, "managed") == data, "{} bytes", text.len());
        assert!(place.command(&["cat", "managed"]).output().unwrap().stdout == data, "{} bytes", text.len());
        let size = place.command(&["run", "--", "stat", "-c", "%s", "managed"]).output().unwrap().stdout;
        assert_eq!(size, format!("{}\n", data.len()).as_bytes(), "{} bytes", text.len());
    }
    assert_eq!(place.json(&["stat", "managed"])["files"][0]["size_bytes"], data.len());
    place.done(&["run", "--", "sh", "-c", "printf new >> managed"]);
    assert!(cat(&place, "managed") == [&data[..], b"new"].concat());
    place.done(&["run", "--", "sh", "-c", "printf whole > managed"]);
    assert_eq!(cat(&place, "managed"), b"whole");
    assert_eq!(cat(&place, "other"), data);
    place.done(&["run", "--", "truncate", "-s", "2", "managed"]);
    place.done(&["release", "managed"]);
    assert_eq!(place.read("managed"), b"wh");
    // An inode that was a stub's is nothing more than what it is now.
    assert_eq!(cat(&place, "managed"), b"wh");
    place.done(&["rm", "other"]);
    assert_eq!(objects(&place), Vec::<PathBuf>::new());
}

/// Without a broker what lies behind such a stub is out of reach, which is an error; other files are opened as ever.
#[test]
fn a_stub_that_was_cut_is_an_error_without_a_broker_and_never_its_text() {
    let (place, _) = managed();
    std::fs::write(place.path("managed"), "some text").unwrap();
    let state = place.path("stripewise-state");
    let library = std::path::Path::new(env!("CARGO_BIN_EXE_stripewise")).with_file_name("libstripewise_preload.so");
    let read = |name: &str| {
        let mut command = std::process::Command::new("cat");
        command.arg(name).current_dir(place.path("")).env("LD_PRELOAD", &library).env("STRIPEWISE_STATE", &state);
        command.output().unwrap()
    };
    let output = read("managed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(said.contains("no broker answers") && said.contains("Input/output error"), "{said}");
    let output = read("cluster.toml");
    assert!(output.status.success() && output.stdout == place.read("cluster.toml"));
}

/// Opens during a release failed with EBUSY, or with ESTALE right after it.
#[test]
fn opens_during_releases_meet_no_error() {
    let (place, data) = managed();
    let mut driver = Driver::start(&place, &[]);
    let sum = "[hashlib.sha256(open('managed', 'rb').read()).hexdigest() for _ in range(40)]";
    let expected = driver.ask("hashlib.sha256(open('data', 'rb').read()).hexdigest()");
    for _ in 0..4 {
        driver.report_capture(&format!("set({sum})"));
        // Refused while the program has it open.
        while place.say(&["release", "managed"]).status != 0 {}
        assert_eq!(driver.answer(), format!("{{'{expected}'}}"));
        assert!(place.read("managed") == data);
        place.done(&["cp", "--managed", "data", "next"]);
        std::fs::rename(place.path("next"), place.path("managed")).unwrap();
    }
    assert!(driver.end().status.success());
}
