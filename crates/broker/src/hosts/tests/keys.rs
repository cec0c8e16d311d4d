use crate::hosts::{ClusterKey, KeyError, address_of};
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_key_is_made_once_and_read_again() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("cluster.key");
    assert!(matches!(ClusterKey::load(&path), Err(KeyError::Missing { .. })));
    let made = ClusterKey::make(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let text = std::fs::read(&path).unwrap();
    assert!(matches!(ClusterKey::make(&path), Err(KeyError::Exists { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), text);
    assert_eq!(ClusterKey::load(&path).unwrap().fingerprint(), made.fingerprint());

    // No file under another name is left.
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
    assert_eq!(format!("{made:?}"), format!("ClusterKey({})", made.fingerprint()));
}

#[test]
fn a_key_that_others_may_use_or_that_is_none_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("cluster.key");
    ClusterKey::make(&path).unwrap();
    for mode in [0o640, 0o604, 0o660, 0o601, 0o777] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let error = ClusterKey::load(&path).unwrap_err();
        assert!(matches!(error, KeyError::Open { mode: found, .. } if found == mode), "{error}");
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    ClusterKey::load(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    for damage in ["", "no key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
        std::fs::write(&path, damage).unwrap();
        let error = ClusterKey::load(&path).unwrap_err();
        assert!(matches!(error, KeyError::Damaged { .. }), "{error}");
    }
    assert!(matches!(ClusterKey::load(root.path()), Err(KeyError::Damaged { .. })));
    if rustix::process::geteuid().is_root() {
        let key = root.path().join("other.key");
        ClusterKey::make(&key).unwrap();
        std::os::unix::fs::chown(&key, Some(12_345), None).unwrap();
        assert!(matches!(ClusterKey::load(&key), Err(KeyError::Owner { owner: 12_345, .. })));
    } else {
        println!("SKIPPED: a key of another user, which only root can make");
    }
}

#[test]
fn an_address_is_given_as_such_by_interface_or_not_at_all() {
    for (listen, address) in [
        ("127.0.0.1", "127.0.0.1:0"),
        ("10.1.2.3:70", "10.1.2.3:70"),
        ("::1", "[::1]:0"),
        ("[::1]", "[::1]:0"),
        ("[::1]:9", "[::1]:9"),
        ("lo", "127.0.0.1:0"),
        ("lo:5000", "127.0.0.1:5000"),
    ] {
        assert_eq!(address_of(listen).unwrap().to_string(), address, "{listen}");
    }
    let chosen = address_of("").unwrap();
    println!("without a name: {chosen}");
    for listen in ["no-such-if", "lo:port", "lo:99999", "1.2.3", "1.2.3.4.5", ":80"] {
        let error = address_of(listen).unwrap_err().to_string();
        assert!(error.contains(&format!("{listen:?}")), "{error}");
    }
}
