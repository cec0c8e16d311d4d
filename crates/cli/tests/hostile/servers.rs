//! Directories of servers in the hands of a user.

use crate::support::{Place, noise, preload};
use crate::user::{USER, is_root, is_untouched, make_roots, make_users};
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::PathBuf;

fn objects(place: &Place, server: &str) -> PathBuf {
    place.path(server).join("stripewise-objects")
}

/// Root changed owner and mode of what stood in the place of objects.
#[test]
fn root_uses_no_directory_of_objects_that_a_user_put_there() {
    if !is_root() {
        return;
    }
    let place = Place::with_cluster();
    make_roots(&place, "roots");
    place.write("data", &noise(3 << 20));
    place.done(&["cp", "--managed", "data", "managed"]);
    let (real, moved) = (objects(&place, "h0"), place.path("moved"));
    std::fs::rename(&real, &moved).unwrap();
    make_users(&place, "h0/stripewise-objects");
    let file = std::fs::read_dir(&moved).unwrap().next().unwrap().unwrap().file_name();
    symlink(place.path("roots"), real.join(&file)).unwrap();
    std::os::unix::fs::lchown(real.join(&file), Some(USER), Some(USER)).unwrap();
    let stub = place.path("managed");
    chown(&stub, Some(USER), Some(USER)).unwrap();
    for words in [&["check", "--repair"][..], &["rm", "managed"]] {
        let said = place.say(words);
        assert!(said.status != 0, "{words:?}");
        let text = said.out + &said.err;
        assert!(text.contains("belong to user 65534, and root follows nobody's directories"), "{words:?}: {text}");
        is_untouched(&place, "roots");
    }
}

/// A link in the place of an object showed, and let be written, what only the reader may.
#[test]
fn a_link_in_the_place_of_an_object_or_its_directory_is_an_error_and_not_followed() {
    preload();
    let place = Place::with_cluster();
    let data = noise(3 << 20);
    place.write("data", &data);
    place.write("secret", b"the reader's own");
    place.done(&["cp", "--managed", "data", "managed"]);
    let directory = std::fs::read_dir(objects(&place, "h0")).unwrap().next().unwrap().unwrap().path();
    let object = std::fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
    let aside = place.path("aside");
    let fails = |what: &str| {
        for words in [&["run", "--", "cat", "managed"][..], &["cat", "managed"]] {
            let said = place.command(words).output().unwrap();
            assert!(!said.status.success(), "{what}: {words:?}");
            assert!(!said.stdout.windows(6).any(|bytes| bytes == b"reader"), "{what}: {words:?}");
        }
        let written = "open('managed', 'r+b').write(b'x' * (3 << 20))";
        assert_ne!(place.say(&["run", "--", "python3", "-c", written]).status, 0, "{what}");
        assert_eq!(place.read("secret"), b"the reader's own", "{what}");
    };
    std::fs::rename(&object, &aside).unwrap();
    symlink(place.path("secret"), &object).unwrap();
    fails("an object");
    std::fs::remove_file(&object).unwrap();
    std::fs::rename(&aside, &object).unwrap();
    std::fs::rename(&directory, &aside).unwrap();
    std::fs::create_dir(place.path("other")).unwrap();
    std::fs::hard_link(place.path("secret"), place.path("other").join(object.file_name().unwrap())).unwrap();
    symlink(place.path("other"), &directory).unwrap();
    fails("the directory of a file's objects");
    assert_eq!(place.path("secret").metadata().unwrap().nlink(), 2);
}
