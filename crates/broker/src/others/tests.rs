use super::*;

pub(super) struct Silent(pub(super) u64);

impl Line for Silent {
    fn ask(&self, _: &[u8], _: Duration) -> Result<Vec<u8>, String> {
        Err("nothing is asked".to_owned())
    }

    fn number(&self) -> u64 {
        self.0
    }

    fn last_heard(&self) -> Instant {
        Instant::now()
    }

    fn end(&self) {}
}

/// So long that a test which waited for it would not end.
const EVER: Duration = Duration::from_secs(1 << 30);

pub(super) fn counts() -> Arc<AgentCounts> {
    Arc::new(AgentCounts::new(0, Arc::default()))
}

fn others(expected: &[&str], timeout: Duration) -> Others {
    Others::new(expected.iter().map(|host| ((*host).to_owned(), AgentIdentity::default())), timeout, 0, &counts())
}

#[test]
fn the_last_master_is_not_waited_for_at_the_start_and_may_have_any_file_all_the_same() {
    let others = others(&["h0", "h1"], EVER);
    others.was_master("h0", Instant::now());
    others.holds("h1", Arc::new(Silent(1)), Vec::new());
    assert_eq!(others.wait_for_expected(), ["h0"]);
    let file = FileId(7);
    assert_eq!(others.host_of(file).as_deref(), Some("h0"));
    assert!(others.refuse_if_elsewhere(file, None).unwrap_err().to_string().contains("h0"));
    others.holds("h0", Arc::new(Silent(2)), Vec::new());
    assert!(others.wait_for_expected().is_empty());
    assert!(!others.has(file));
}

#[test]
fn a_host_is_silent_from_when_it_was_heard_last() {
    let others = others(&["h0", "h1"], Duration::from_secs(5));
    let long_ago = Instant::now().checked_sub(Duration::from_secs(5));
    let Some(long_ago) = long_ago else { return eprintln!("SKIPPED: the machine was booted a moment ago") };
    let file = FileId(7);
    others.holds("h1", Arc::new(Silent(1)), vec![file]);
    others.was_master("h0", long_ago);
    others.lost("h1", 1, long_ago);
    // Waits for nobody.
    assert!(others.shut(file, 0).unwrap_err().to_string().contains("host forget"));
    // Another line's end is not this one's.
    others.holds("h1", Arc::new(Silent(2)), vec![file]);
    others.lost("h1", 1, long_ago);
    let [h0, h1] = &others.list()[..] else { panic!("two hosts are known") };
    assert_eq!((h0.answers, h0.is_silent, h0.files), (false, true, None));
    assert_eq!((h1.answers, h1.is_silent, h1.files), (true, false, Some(1)));
    assert!(h0.unheard_ms >= 5000, "{h0:?}");
}
