//! `check`: every kind of damage that it knows, found, repaired, and not found again.

use crate::cluster::{Client, Opened, REGION, Testbed};
use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use stripewise_layout::ByteCount;
use stripewise_store::protocol::{Admin, Finding, Refusal, Reply, Request};
use stripewise_store::stub::Stub;

fn check(client: &Client, repair: bool) -> Vec<Finding> {
    match client.ask(Request::Admin(Admin::Check { repair })).unwrap() {
        Reply::Findings { findings } => findings,
        other => panic!("{other:?}"),
    }
}

/// Finds exactly one thing, which `expected` describes; repairs it; finds nothing more.
fn one_repairable(client: &Client, expected: &str) {
    for (repair, repaired) in [(false, false), (true, true)] {
        let findings = check(client, repair);
        assert!(
            matches!(&findings[..], [finding] if finding.what.contains(expected) && finding.repaired == repaired),
            "expected {expected}: {findings:?}"
        );
    }
    assert_eq!(check(client, true), []);
}

/// A closed file of two regions with objects.
fn file(testbed: &Testbed, client: &Client, path: &Path) -> Opened {
    let (opened, _stub) = client.create(path).unwrap();
    client.place(opened.file, 0, 1).unwrap();
    opened.extent.extend_to(2 * REGION);
    client.ask(Request::Close { file: opened.file }).unwrap();
    assert_eq!(testbed.object_count(opened.file), 8);
    opened
}

fn opens(client: &Client, opened: &Opened, path: &Path) {
    let again = client.open(opened.file, File::open(path).unwrap()).unwrap();
    assert_eq!((again.extent.size_bytes(), again.generation(1)), (2 * REGION, Some(2)));
    client.ask(Request::Close { file: opened.file }).unwrap();
    let stub = Stub::parse(&std::fs::read(path).unwrap()).unwrap().unwrap();
    assert_eq!(stub.file, opened.file);
}

#[test]
fn a_sound_cluster_has_no_findings() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    assert_eq!(check(&client, true), []);
    let path = testbed.data("a");
    let opened = file(&testbed, &client, &path);
    assert_eq!(check(&client, true), []);
    assert_eq!(testbed.object_count(opened.file), 8);
}

#[test]
fn orphans_are_removed_and_nothing_else() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let opened = file(&testbed, &client, &testbed.data("a"));
    let objects = testbed.server_directory(1).join("stripewise-objects");
    std::fs::write(objects.join(format!("{}/1.77", opened.file)), b"old").unwrap();
    one_repairable(&client, "1 objects on server hdd1 are left over from");
    assert_eq!(testbed.object_count(opened.file), 8);
    let unknown = objects.join("00000000000000aa");
    std::fs::create_dir(&unknown).unwrap();
    std::fs::write(unknown.join("0.1"), b"lost").unwrap();
    one_repairable(&client, "holds objects of 1 files that are not in the mapping table");
    assert!(!unknown.exists());
    assert_eq!(testbed.object_count(opened.file), 8);
}

#[test]
fn a_stub_overwritten_in_place_is_restored_and_the_text_kept() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let path = testbed.data("a");
    let opened = file(&testbed, &client, &path);
    for (text, aside) in
        [("edited", "a.before-check"), ("edited again, and longer than any stub\n", "a.before-check.2")]
    {
        let text = text.repeat(50);
        std::fs::write(&path, &text).unwrap();
        one_repairable(&client, "was overwritten");
        assert_eq!(std::fs::read_to_string(testbed.data(aside)).unwrap(), text);
        opens(&client, &opened, &path);
    }
}

#[test]
fn a_stub_replaced_by_its_backup_is_restored_and_by_another_file_it_is_kept() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let path = testbed.data("a");
    let opened = file(&testbed, &client, &path);
    let backup = testbed.root().join("backup");
    std::fs::copy(&path, &backup).unwrap();
    // An editor writes a new file and renames it.
    let new = testbed.root().join("new");
    std::fs::write(&new, "an editor's text").unwrap();
    std::fs::rename(&new, &path).unwrap();
    for repair in [false, true, true] {
        let findings = check(&client, repair);
        assert!(
            matches!(&findings[..], [finding] if finding.what.contains("another file stands at")
                && finding.remedy.contains("stripewise rescue") && !finding.repaired),
            "{findings:?}"
        );
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "an editor's text");
    assert_eq!(testbed.object_count(opened.file), 8);
    // A backup is restored.
    std::fs::copy(&backup, &new).unwrap();
    std::fs::rename(&new, &path).unwrap();
    let refused = client.open(opened.file, File::open(&path).unwrap()).err();
    assert!(matches!(refused, Some(Refusal::CopiedStub { .. })), "{refused:?}");
    one_repairable(&client, "was replaced by a copy of itself");
    opens(&client, &opened, &path);
    assert_eq!(testbed.object_count(opened.file), 8);
}

#[test]
fn a_stub_that_is_gone_renamed_or_moved_is_followed_or_restored() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let path = testbed.data("a");
    let opened = file(&testbed, &client, &path);
    std::fs::rename(&path, testbed.data("b")).unwrap();
    let findings = check(&client, false);
    assert!(matches!(&findings[..], [finding] if finding.what.contains("was renamed to")), "{findings:?}");
    assert_eq!(check(&client, false), []);
    opens(&client, &opened, &testbed.data("b"));
    // Moved between file systems, as `mv` does it, and opened in vain.
    let moved = testbed.root().join("moved");
    std::fs::copy(testbed.data("b"), &moved).unwrap();
    std::fs::remove_file(testbed.data("b")).unwrap();
    client.open(opened.file, File::open(&moved).unwrap()).err().unwrap();
    one_repairable(&client, "is a copy of it");
    opens(&client, &opened, &moved);
    std::fs::remove_file(&moved).unwrap();
    one_repairable(&client, "is gone");
    opens(&client, &opened, &moved);
    assert_eq!(
        std::fs::metadata(&moved).unwrap().mode() & 0o666,
        std::fs::metadata(testbed.server_directory(0).join(format!("stripewise-objects/{}/0.1", opened.file)))
            .unwrap()
            .mode()
            & 0o666
    );
}

#[test]
fn copies_missing_objects_fallbacks_faults_and_modes_are_told() {
    let mut testbed = Testbed::new();
    for server in 2..4 {
        testbed.cluster.servers[server].capacity = Some(ByteCount(REGION / 4));
    }
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let path = testbed.data("a");
    let (opened, stub) = client.create(&path).unwrap();
    client.place(opened.file, 0, 2).unwrap();
    std::fs::copy(&path, testbed.data("copy")).unwrap();
    client.open(opened.file, File::open(testbed.data("copy")).unwrap()).err().unwrap();
    std::fs::remove_file(testbed.server_directory(1).join(format!("stripewise-objects/{}/1.2", opened.file))).unwrap();
    std::fs::rename(testbed.server_directory(3), testbed.root().join("away")).unwrap();
    stub.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
    let findings: Vec<String> = check(&client, false).into_iter().map(|finding| finding.what).collect();
    for expected in
        ["server ssd1: ", "1 of the regions of", "2 of 3 regions of", "is a copy of the stub", "mode or owner of"]
    {
        assert_eq!(findings.iter().filter(|what| what.contains(expected)).count(), 1, "{expected}: {findings:?}");
    }
    assert_eq!(findings.len(), 5, "{findings:?}");
    std::fs::rename(testbed.root().join("away"), testbed.server_directory(3)).unwrap();
    std::fs::remove_file(testbed.data("copy")).unwrap();
    let findings = check(&client, true);
    assert!(
        findings
            .iter()
            .any(|finding| finding.what.contains("is missing") || finding.what.contains("lack their object"))
    );
    let object = testbed.server_directory(3).join(format!("stripewise-objects/{}/0.1", opened.file));
    assert!(object.exists(), "repair removes nothing that a record names");
}

#[test]
fn many_findings_fit_a_packet() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    for number in 0..600 {
        let path = testbed.data(&format!("{number}-{}", "x".repeat(100)));
        let (opened, _stub) = client.create(&path).unwrap();
        client.ask(Request::Close { file: opened.file }).unwrap();
        std::fs::remove_file(&path).unwrap();
    }
    let findings = check(&client, false);
    assert!(findings.last().unwrap().what.contains("more findings"), "{:?}", findings.last());
    while check(&client, true).len() > 1 {}
    assert_eq!(check(&client, false), []);
}
