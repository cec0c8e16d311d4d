//! Names of managed files that change hands: what a noted call does, and what its caller's death leaves.

use crate::cluster::{Client, Opened, REGION, Testbed, rand_number};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};
use stripewise_layout::FileId;
use stripewise_store::protocol::{Admin, Finding, NameCall, Refusal, Reply, Request};

fn check(client: &Client) -> Vec<Finding> {
    match client.ask(Request::Admin(Admin::Check { repair: true })).unwrap() {
        Reply::Findings { findings } => findings,
        other => panic!("{other:?}"),
    }
}

/// A closed file with objects.
fn file(client: &Client, path: &Path) -> (FileId, File) {
    let (opened, stub) = client.create(path).unwrap();
    client.place(opened.file, 0, 1).unwrap();
    opened.extent.extend_to(2 * REGION);
    client.ask(Request::Close { file: opened.file }).unwrap();
    (opened.file, stub)
}

fn opens(client: &Client, file: FileId, path: &Path) -> Opened {
    let opened = client.open(file, File::open(path).unwrap()).unwrap();
    client.ask(Request::Close { file }).unwrap();
    opened
}

/// The file as whoever removes it shows it; it is open to nobody by that.
fn held(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH, Mode::empty()).unwrap()
}

/// Says that `from` is about to be renamed to `to`; both managed if they have ids.
pub(crate) fn begin_rename(
    client: &Client,
    (from, mover): (&Path, Option<FileId>),
    (to, victim): (&Path, Option<FileId>),
) -> Result<u64, Refusal> {
    let number = rand_number();
    let directory = |path: &Path| held(path.parent().unwrap());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().as_bytes().to_vec();
    let (source, target) = (Some(name(from)), name(to));
    let request = Request::BeginNameChange { number, call: NameCall::Rename, source, target, victim, mover };
    let (into, out_of, moved) = (directory(to), directory(from), held(from));
    let replaced = victim.map(|_| held(to));
    let mut along = vec![into.as_fd(), out_of.as_fd()];
    along.extend(replaced.as_ref().map(AsFd::as_fd));
    along.push(moved.as_fd());
    client.ask_with(request, &along).map(|_| number)
}

struct Bed {
    testbed: Testbed,
    old: FileId,
    new: FileId,
}

/// `old` and `new`, two managed files.
fn bed() -> (Bed, stripewise_broker::BrokerHandle, Client) {
    let testbed = Testbed::new();
    let broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let ((old, _), (new, _)) = (file(&client, &testbed.data("old")), file(&client, &testbed.data("new")));
    (Bed { testbed, old, new }, broker, client)
}

impl Bed {
    /// `new` has the name `old`, and the data that it had is freed.
    fn has_replaced(&self, client: &Client) {
        assert_eq!(check(client), []);
        assert_eq!((self.testbed.object_count(self.old), self.testbed.object_count(self.new)), (0, 8));
        opens(client, self.new, &self.testbed.data("old"));
        assert!(!self.testbed.data("new").exists());
    }
}

/// A repair between a rename and its word to the broker put the old file back over the new one.
#[test]
fn a_repair_in_the_midst_of_a_rename_changes_nothing() {
    let (bed, _broker, client) = bed();
    let (old, new) = (bed.testbed.data("old"), bed.testbed.data("new"));
    let number = begin_rename(&client, (&new, Some(bed.new)), (&old, Some(bed.old))).unwrap();
    assert_eq!(check(&client), []);
    std::fs::rename(&new, &old).unwrap();
    assert_eq!(check(&client), []);
    client.end_name_change(number, true).unwrap();
    client.end_name_change(number, true).unwrap();
    bed.has_replaced(&client);
}

/// The same of an ordinary file that replaces a managed one.
#[test]
fn an_ordinary_file_that_a_noted_rename_puts_in_place_of_a_managed_one_stays() {
    let (bed, _broker, client) = bed();
    let (old, ordinary) = (bed.testbed.data("old"), bed.testbed.data("ordinary"));
    std::fs::write(&ordinary, "ordinary").unwrap();
    let number = begin_rename(&client, (&ordinary, None), (&old, Some(bed.old))).unwrap();
    std::fs::rename(&ordinary, &old).unwrap();
    assert_eq!(check(&client), []);
    client.end_name_change(number, true).unwrap();
    assert_eq!(check(&client), []);
    assert_eq!((std::fs::read(&old).unwrap(), bed.testbed.object_count(bed.old)), (b"ordinary".to_vec(), 0));
}

#[test]
fn a_rename_that_failed_frees_nothing() {
    let (bed, _broker, client) = bed();
    let (old, new) = (bed.testbed.data("old"), bed.testbed.data("new"));
    let number = begin_rename(&client, (&new, Some(bed.new)), (&old, Some(bed.old))).unwrap();
    client.end_name_change(number, false).unwrap();
    assert_eq!(check(&client), []);
    opens(&client, bed.old, &old);
    opens(&client, bed.new, &new);
}

#[test]
fn one_name_is_changed_by_one_call_at_a_time() {
    let (bed, _broker, client) = bed();
    let (old, new) = (bed.testbed.data("old"), bed.testbed.data("new"));
    let number = begin_rename(&client, (&new, Some(bed.new)), (&old, Some(bed.old))).unwrap();
    let other = bed.testbed.client();
    let refused = other.begin_removal(&new, bed.new, File::open(&new).unwrap());
    assert!(matches!(refused, Err(Refusal::NameInUse { .. })), "{refused:?}");
    std::fs::rename(&new, &old).unwrap();
    client.end_name_change(number, true).unwrap();
    // The other looks again: the file that it saw at `old` is not there any more.
    let refused = other.begin_removal(&old, bed.old, File::open(&old).unwrap());
    assert!(refused.is_err(), "{refused:?}");
    other.remove(&old, bed.new, held(&old)).unwrap();
    assert_eq!((check(&client), bed.testbed.object_count(bed.new)), (vec![], 0));
}

/// The caller was killed after its rename; the broker lives.
#[test]
fn a_rename_whose_caller_died_is_taken_in_when_its_connection_ends() {
    for is_made in [true, false] {
        let (bed, _broker, client) = bed();
        let (old, new) = (bed.testbed.data("old"), bed.testbed.data("new"));
        let dying = bed.testbed.client();
        begin_rename(&dying, (&new, Some(bed.new)), (&old, Some(bed.old))).unwrap();
        if is_made {
            std::fs::rename(&new, &old).unwrap();
        }
        drop(dying);
        // The next one that wants the name waits for the broker to notice.
        while let Err(Refusal::NameInUse { .. }) = client.begin_removal(&new, bed.new, File::open(&old).unwrap()) {}
        if is_made {
            // What it replaced is found until it is freed.
            let begun = Instant::now();
            while !check(&client).is_empty() && begun.elapsed() < Duration::from_secs(100) {}
            bed.has_replaced(&client);
        } else {
            assert_eq!(check(&client), []);
            opens(&client, bed.old, &old);
            opens(&client, bed.new, &new);
        }
    }
}

/// Caller and broker were killed, as a command is that serves itself: nobody holds the old stub.
#[test]
fn a_rename_whose_caller_and_broker_died_is_settled_by_the_next_broker() {
    for is_made in [true, false] {
        let (bed, broker, client) = bed();
        let (old, new) = (bed.testbed.data("old"), bed.testbed.data("new"));
        begin_rename(&client, (&new, Some(bed.new)), (&old, Some(bed.old))).unwrap();
        // Before the connection: the broker does not notice its end.
        broker.stop();
        drop(client);
        if is_made {
            std::fs::rename(&new, &old).unwrap();
        }
        let _broker = bed.testbed.start();
        let client = bed.testbed.client();
        if is_made {
            bed.has_replaced(&client);
        } else {
            assert_eq!(check(&client), []);
            opens(&client, bed.old, &old);
            opens(&client, bed.new, &new);
        }
    }
}

/// The broker alone was killed: the caller lives, says so to the successor, and its word is waited for.
#[test]
fn a_rename_whose_broker_died_waits_for_its_caller() {
    let (bed, broker, mut client) = bed();
    let (old, new) = (bed.testbed.data("old"), bed.testbed.data("new"));
    let (slot, incarnation) = client.claim();
    let number = begin_rename(&client, (&new, Some(bed.new)), (&old, Some(bed.old))).unwrap();
    let victim = held(&old);
    broker.stop();
    let _broker = bed.testbed.start();
    let again = bed.testbed.client();
    again.ask(Request::Claimed { slot: slot.0, incarnation: incarnation.0 }).unwrap();
    let refused = again.begin_removal(&old, bed.old, File::open(&old).unwrap());
    assert!(matches!(refused, Err(Refusal::NameInUse { .. })), "{refused:?}");
    std::fs::rename(&new, &old).unwrap();
    assert_eq!(check(&again), []);
    again.ask_with(Request::EndNameChange { number, done: true }, &[victim.as_fd()]).unwrap();
    bed.has_replaced(&again);
}

/// Nothing is left to see of a removal: whether the stub was removed or moved away since, a person knows.
#[test]
fn a_removal_that_nobody_saw_the_end_of_is_told_and_its_data_kept() {
    for is_rescued in [true, false] {
        let (bed, broker, client) = bed();
        let old = bed.testbed.data("old");
        client.begin_removal(&old, bed.old, File::open(&old).unwrap()).unwrap();
        broker.stop();
        drop(client);
        std::fs::remove_file(&old).unwrap();
        let broker = bed.testbed.start();
        assert!(broker.cleaned().iter().any(|said| said.contains("was killed")), "{:?}", broker.cleaned());
        let client = bed.testbed.client();
        for _ in 0..2 {
            let findings = check(&client);
            let named = |finding: &Finding| finding.remedy.contains(&format!("stripewise rm --id {}", bed.old));
            assert!(matches!(&findings[..], [finding] if !finding.repaired && named(finding)), "{findings:?}");
            assert!(!old.exists());
        }
        // The file that took the name since is named too, and stays.
        let (later, _) = file(&client, &old);
        let findings = check(&client);
        let names_both = |finding: &Finding| {
            finding.what.contains(&bed.old.to_string())
                && finding.what.contains(&later.to_string())
                && finding.remedy.contains(&format!("stripewise rescue {}", bed.old))
        };
        assert!(matches!(&findings[..], [finding] if !finding.repaired && names_both(finding)), "{findings:?}");
        client.remove(&old, later, File::open(&old).unwrap()).unwrap();
        let path = bed.testbed.data("rescued");
        let rescue = Admin::Rescue { file: bed.old, path: path.to_str().unwrap().to_owned() };
        let decision = if is_rescued { rescue } else { Admin::Remove { file: bed.old } };
        client.ask(Request::Admin(decision)).unwrap();
        assert_eq!(check(&client), []);
        assert_eq!(bed.testbed.object_count(bed.old), if is_rescued { 8 } else { 0 });
        if is_rescued {
            opens(&client, bed.old, &path);
        }
    }
}

/// A removal whose stub still stands was not made.
#[test]
fn a_removal_that_was_not_made_leaves_the_file() {
    let (bed, broker, client) = bed();
    let old = bed.testbed.data("old");
    client.begin_removal(&old, bed.old, File::open(&old).unwrap()).unwrap();
    broker.stop();
    drop(client);
    let _broker = bed.testbed.start();
    let client = bed.testbed.client();
    assert_eq!(check(&client), []);
    opens(&client, bed.old, &old);
}

/// `mv new old` without redirection: the repair restored the old stub over the new one, or swapped their bytes.
#[test]
fn a_managed_file_moved_over_another_stays_and_both_are_named() {
    let (bed, _broker, client) = bed();
    let (old, new) = (bed.testbed.data("old"), bed.testbed.data("new"));
    std::fs::rename(&new, &old).unwrap();
    let findings = check(&client);
    assert!(findings.iter().any(|finding| finding.what.contains("was renamed to")), "{findings:?}");
    let asks = |findings: &[Finding]| {
        let open: Vec<_> = findings.iter().filter(|finding| !finding.repaired).cloned().collect();
        assert!(
            matches!(&open[..], [finding] if finding.what.contains(&bed.old.to_string())
                && finding.what.contains(&bed.new.to_string())
                && finding.remedy.contains(&format!("stripewise rescue {}", bed.old))),
            "{findings:?}"
        );
    };
    asks(&findings);
    asks(&check(&client));
    opens(&client, bed.new, &old);
    assert_eq!((bed.testbed.object_count(bed.old), bed.testbed.object_count(bed.new)), (8, 8));
    // An existing name is refused, a file with a name needs none.
    let rescue =
        |file, path: &Path| client.ask(Request::Admin(Admin::Rescue { file, path: path.to_str().unwrap().to_owned() }));
    assert!(rescue(bed.old, &old).is_err() && rescue(bed.new, &new).is_err());
    assert!(client.ask(Request::Admin(Admin::Remove { file: bed.new })).is_err());
    rescue(bed.old, &new).unwrap();
    assert_eq!(check(&client), []);
    opens(&client, bed.old, &new);
}

/// The same while a program has the old file open: it keeps its data, and so does the cluster.
#[test]
fn a_file_that_was_replaced_behind_our_back_while_it_was_open_is_kept() {
    let (bed, _broker, client) = bed();
    let (old, new) = (bed.testbed.data("old"), bed.testbed.data("new"));
    client.open(bed.old, File::open(&old).unwrap()).unwrap();
    std::fs::rename(&new, &old).unwrap();
    client.ask(Request::Close { file: bed.old }).unwrap();
    assert_eq!(bed.testbed.object_count(bed.old), 8);
    assert!(check(&client).iter().any(|finding| finding.remedy.contains("stripewise rescue")));
    client.ask(Request::Admin(Admin::Remove { file: bed.old })).unwrap();
    assert_eq!((check(&client), bed.testbed.object_count(bed.old)), (vec![], 0));
}

/// The same of a removal: while a program had the file open, `rm` freed its data.
#[test]
fn a_file_that_was_removed_behind_our_back_while_it_was_open_is_kept() {
    let (bed, _broker, client) = bed();
    let old = bed.testbed.data("old");
    client.open(bed.old, File::open(&old).unwrap()).unwrap();
    std::fs::remove_file(&old).unwrap();
    client.ask(Request::Close { file: bed.old }).unwrap();
    assert_eq!(bed.testbed.object_count(bed.old), 8);
    assert!(check(&client).iter().all(|finding| finding.repaired && finding.remedy.contains("is restored")));
    opens(&client, bed.old, &old);
    assert_eq!(check(&client), []);
}

/// The record went where the caller said, and the next repair made a stub there.
#[test]
fn a_rename_that_is_said_to_be_made_and_was_not_moves_no_record() {
    let (bed, _broker, client) = bed();
    let (old, elsewhere) = (bed.testbed.data("old"), bed.testbed.root().join("elsewhere"));
    let number = begin_rename(&client, (&old, Some(bed.old)), (&elsewhere, None)).unwrap();
    client.end_name_change(number, true).unwrap();
    assert_eq!(check(&client), []);
    opens(&client, bed.old, &old);
    assert!(!elsewhere.exists());
}

/// `mv out out.1; mkdir out`, new files inside: the repair gave the new files' names to the old data.
#[test]
fn files_in_a_renamed_directory_are_followed_though_its_name_is_used_again() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    // In a managed directory, and in one that is not and whose own name is used again.
    for root in [testbed.data("out"), testbed.data("deep").join("er/out")] {
        std::fs::create_dir_all(&root).unwrap();
        let (first, _) = file(&client, &root.join("f"));
        let renamed = root.with_file_name("out.1");
        std::fs::rename(&root, &renamed).unwrap();
        std::fs::create_dir(&root).unwrap();
        let (second, _) = file(&client, &root.join("f"));
        let findings = check(&client);
        assert!(
            findings.iter().all(|finding| finding.repaired && finding.what.contains("was renamed to")),
            "{findings:?}"
        );
        assert_eq!(check(&client), []);
        opens(&client, first, &renamed.join("f"));
        opens(&client, second, &root.join("f"));
    }
    // The managed directory itself: its files are found by the directory that they were in.
    let (first, _) = file(&client, &testbed.data("f"));
    let data = testbed.data("");
    let renamed = testbed.root().join("data.1");
    std::fs::rename(&data, &renamed).unwrap();
    std::fs::create_dir(&data).unwrap();
    std::fs::write(testbed.data("f"), "another").unwrap();
    let findings = check(&client);
    let followed = findings.iter().filter(|finding| finding.what.contains("was renamed to")).count();
    assert!(followed >= 1, "{findings:?}");
    opens(&client, first, &renamed.join("f"));
    assert_eq!(std::fs::read(testbed.data("f")).unwrap(), b"another");
}

/// Only the directory of the stub itself was looked for under another name.
#[test]
fn files_are_followed_whichever_directories_above_them_were_renamed() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let moves: [&[(&str, &str)]; 4] = [
        // The managed directory; a directory in the midst; all three; one into another directory, below the managed one that is renamed too.
        &[("data", "data.1")],
        &[("data/a", "data/a.1")],
        &[("data/a/b", "data/a/b.1"), ("data/a", "data/a.1"), ("data", "data.1")],
        &[("data/a/b", "data/c"), ("data", "data.1")],
    ];
    for (moves, stands_at) in moves.into_iter().zip(["data.1/a/b/f", "data/a.1/b/f", "data.1/a.1/b.1/f", "data.1/c/f"])
    {
        let (root, path) = (testbed.root(), testbed.data("a/b/f"));
        let make = || {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            file(&client, &path).0
        };
        let first = make();
        for (from, to) in moves {
            std::fs::rename(root.join(from), root.join(to)).unwrap();
        }
        let second = make();
        let findings = check(&client);
        let said = format!("{stands_at}: {findings:?}");
        assert!(findings.iter().all(|finding| finding.repaired && finding.what.contains("was renamed to")), "{said}");
        assert!(matches!(&findings[..], [finding] if finding.what.ends_with(stands_at)), "{said}");
        assert_eq!(check(&client), [], "{said}");
        opens(&client, first, &root.join(stands_at));
        opens(&client, second, &path);
        for (id, path) in [(first, root.join(stands_at)), (second, path)] {
            client.remove(&path, id, File::open(&path).unwrap()).unwrap();
        }
        for left in ["data.1", "data"] {
            let _ = std::fs::remove_dir_all(root.join(left));
        }
        std::fs::create_dir(root.join("data")).unwrap();
    }
}

#[test]
fn a_stub_that_was_made_without_a_name_keeps_the_one_it_got() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let path = testbed.data("a");
    let (mut maker, heir) = (testbed.client(), testbed.client());
    maker.claim();
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let stub = rustix::fs::open(path.parent().unwrap(), flags, Mode::RUSR | Mode::WUSR).unwrap();
    let request = Request::Create { path: path.to_str().unwrap().to_owned() };
    let (reply, _memory) = maker.ask_with(request, &[stub.as_fd()]).unwrap();
    let Reply::Opened { file, .. } = reply else { panic!("{reply:?}") };
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&stub));
    let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(rustix::fs::CWD, link, rustix::fs::CWD, &path, follow).unwrap();
    maker.ask(Request::Linked { file }).unwrap();
    // As a child does that inherits the descriptor.
    heir.open(file, &stub).unwrap();
    match heir.ask(Request::Admin(Admin::List { after: None })).unwrap() {
        Reply::Files { files, .. } => assert_eq!(files[0].path, path.to_str().unwrap()),
        other => panic!("{other:?}"),
    }
}

/// Its maker says that it has its name with its first write only.
#[test]
fn a_new_file_that_another_renames_before_its_maker_says_its_name_has_the_new_one() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let (maker, other) = (testbed.client(), testbed.client());
    let (made, renamed) = (testbed.data("made"), testbed.data("renamed"));
    let stub = File::options().read(true).write(true).create_new(true).open(&made).unwrap();
    let request = Request::Create { path: made.to_str().unwrap().to_owned() };
    let (reply, _memory) = maker.ask_with(request, &[stub.as_fd()]).unwrap();
    let Reply::Opened { file, .. } = reply else { panic!("{reply:?}") };
    let listed = || match other.ask(Request::Admin(Admin::List { after: None })).unwrap() {
        Reply::Files { files, .. } => (files[0].path.clone(), files[0].state.clone()),
        reply => panic!("{reply:?}"),
    };
    assert_eq!(listed().1, "creating");
    let number = begin_rename(&other, (&made, Some(file)), (&renamed, None)).unwrap();
    std::fs::rename(&made, &renamed).unwrap();
    other.end_name_change(number, true).unwrap();
    let expected = (renamed.to_str().unwrap().to_owned(), "live".to_owned());
    assert_eq!(listed(), expected);
    maker.ask(Request::LinkedAndBegin { file, bytes: 100 }).unwrap();
    assert_eq!((listed(), testbed.object_count(file)), (expected, 1));
}
