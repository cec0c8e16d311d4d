use super::*;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, symlink};

/// An empty directory of mode `mode` with the old file `old`.
fn place(mode: u32) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
    std::fs::write(directory.path().join("old"), "old").unwrap();
    directory
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn mode_of(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

#[test]
fn an_output_is_replaced_as_a_whole_and_keeps_its_mode() {
    let place = place(0o700);
    let (old, new) = (place.path().join("old"), place.path().join("new"));
    std::fs::set_permissions(&old, Permissions::from_mode(0o640)).unwrap();
    let mut reader = File::open(&old).unwrap();
    write_with(&old, |mut file| {
        file.write_all(b"new")?;
        assert_eq!(mode_of(&place.path().join("old")), 0o640, "nothing happens to it before all is written");
        let made = names(place.path()).into_iter().find(|name| name != "old").unwrap();
        assert_eq!(mode_of(&place.path().join(made)), 0o600, "nobody else reads it before it is complete");
        Result::Ok(())
    })
    .unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), std::fs::read(&old).unwrap().as_slice()), ("old", &b"new"[..]));
    assert_eq!(mode_of(&old), 0o640);
    write(&new, "text").unwrap();
    let plain = place.path().join("plain");
    File::create(&plain).unwrap();
    assert_eq!(mode_of(&new), mode_of(&plain), "as the umask says");
    assert_eq!(names(place.path()), ["new", "old", "plain"]);
}

#[test]
fn an_output_that_fails_changes_nothing() {
    let place = place(0o700);
    let old = place.path().join("old");
    let failed = write_with(&old, |mut file| {
        file.write_all(b"half")?;
        Err(Error::other("no more"))
    });
    assert_eq!(failed.unwrap_err().to_string(), "no more");
    assert_eq!((std::fs::read(&old).unwrap().as_slice(), names(place.path())), (&b"old"[..], vec!["old".to_owned()]));
    let into = write(&place.path().join("gone/new"), "text").unwrap_err();
    assert_eq!(into.kind(), ErrorKind::NotFound);
    assert_eq!(write(place.path(), "text").unwrap_err().kind(), ErrorKind::IsADirectory);
}

#[test]
fn a_link_of_ones_own_is_followed_and_stays() {
    let place = place(0o700);
    let at = |name: &str| place.path().join(name);
    std::fs::create_dir(at("below")).unwrap();
    symlink("below/link", at("first")).unwrap();
    symlink(at("old"), at("below/link")).unwrap();
    symlink("not-yet", at("below/dangling")).unwrap();
    symlink("loop", at("loop")).unwrap();
    write(&at("first"), "new").unwrap();
    assert!(at("first").is_symlink() && at("below/link").is_symlink() && !at("old").is_symlink());
    assert_eq!(std::fs::read(at("old")).unwrap(), b"new");
    write(&at("below/dangling"), "made").unwrap();
    assert_eq!(std::fs::read(at("below/not-yet")).unwrap(), b"made");
    assert_eq!(write(&at("loop"), "text").unwrap_err().raw_os_error(), Some(Errno::LOOP.raw_os_error()));
}

#[test]
fn devices_pipes_and_descriptors_are_written_and_stay() {
    write(Path::new("/dev/null"), "text").unwrap();
    assert!(FileType::from_raw_mode(rustix::fs::lstat("/dev/null").unwrap().st_mode) == FileType::CharacterDevice);
    let place = place(0o700);
    let (fifo, old) = (place.path().join("fifo"), place.path().join("old"));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| std::fs::read(&fifo).unwrap());
        write(&fifo, "through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
    });
    assert!(!fifo.is_file());
    // As the standard output that a shell redirects into a file, which has text already.
    let open = File::options().append(true).open(&old).unwrap();
    write(Path::new(&format!("/dev/fd/{}", open.as_raw_fd())), " and new").unwrap();
    assert_eq!(std::fs::read(&old).unwrap(), b"old and new");
    let (mut reader, writer) = std::io::pipe().unwrap();
    write(Path::new(&format!("/proc/self/fd/{}", writer.as_raw_fd())), "piped").unwrap();
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "piped");
}

/// In a directory such as `/tmp`, whatever stands at the output's name: it was written, followed and waited for.
#[test]
fn what_another_user_put_into_a_shared_directory_is_refused() {
    const OTHER: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can make what belongs to another user; run this test as root");
        return;
    }
    let other = |path: &Path| std::os::unix::fs::lchown(path, Some(OTHER), Some(OTHER)).unwrap();
    for (mode, is_refused) in [(0o1777, true), (0o1775, true), (0o777, false), (0o1755, false)] {
        let place = place(mode);
        let secret = place.path().join("old");
        let (link, file, fifo) = (place.path().join("link"), place.path().join("file"), place.path().join("fifo"));
        symlink(&secret, &link).unwrap();
        std::fs::write(&file, "theirs").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [&link, &file, &fifo] {
            other(path);
        }
        if !is_refused {
            write(&link, "new").unwrap();
            write(&file, "new").unwrap();
            assert_eq!(
                (std::fs::read(&secret).unwrap().as_slice(), std::fs::read(&file).unwrap().as_slice()),
                (&b"new"[..], &b"new"[..])
            );
            assert_eq!(file.metadata().unwrap().uid(), OTHER, "the file stays its owner's");
            continue;
        }
        for (path, kind) in [(&link, "a symbolic link"), (&file, "a file"), (&fifo, "a FIFO, a socket or a device")] {
            let error = write(path, "new").unwrap_err();
            assert!(error.to_string().starts_with(&format!("{kind} of user {OTHER} stands there")), "{error}");
        }
        assert_eq!(
            (std::fs::read(&secret).unwrap().as_slice(), std::fs::read(&file).unwrap().as_slice()),
            (&b"old"[..], &b"theirs"[..])
        );
        // Who made the directory may make links for all.
        other(place.path());
        write(&link, "new").unwrap();
        assert_eq!(std::fs::read(&secret).unwrap(), b"new");
    }
}
