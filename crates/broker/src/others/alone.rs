//! Whether the master is cut off from all other hosts.
//!
//! When nothing is heard of any host since about the same time, it is rather the master that is cut off. It shuts out nobody then, and gives its role up
//! to one that the others reach. Two hosts at least have come under this master, or one of them may as well have failed.

use super::{CHECK_INTERVAL, LATE, Others};
use crate::guard;
use std::time::{Duration, Instant};

/// Whether that is so for as long as makes a host silent.
pub(crate) fn is_alone(others: &Others) -> bool {
    is_unheard_for(others, others.silence)
}

/// Waits while it may turn out to be so, and returns whether it does.
pub(crate) fn wait_whether_alone(others: &Others) -> bool {
    while is_unheard_for(others, LATE.min(others.silence)) {
        if is_alone(others) {
            return true;
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
    false
}

fn is_unheard_for(others: &Others, time: Duration) -> bool {
    let seats = guard(&others.seats);
    let mut heard: Vec<Instant> = Vec::new();
    for (_, seat) in seats.iter() {
        if !seat.link.is_silent(time) {
            return false;
        }
        heard.extend(seat.link.has_come.then(|| seat.link.last_heard()));
    }
    heard.sort_unstable();
    let [.., last_but_one, last] = heard[..] else { return false };
    last - last_but_one < LATE
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Silent, counts};
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_master_is_alone_when_all_hosts_fell_silent_at_once() {
        let timeout = Duration::from_secs(5);
        let [a_while_ago, longer_ago] = [6, 10].map(|s| Instant::now().checked_sub(Duration::from_secs(s)));
        let (Some(a_while_ago), Some(longer_ago)) = (a_while_ago, longer_ago) else {
            return eprintln!("SKIPPED: the machine was booted a moment ago");
        };
        let is_alone_after = |silent: &[(&str, Instant)], heard: &[&str]| {
            let others = Others::new([("never-came".to_owned(), Default::default())], timeout, 0, &counts());
            others.was_master("never-came", a_while_ago);
            for host in silent.iter().map(|(host, _)| host).chain(heard) {
                others.holds(host, Arc::new(Silent(1)), Vec::new());
            }
            silent.iter().for_each(|(host, since)| others.lost(host, 1, *since));
            is_alone(&others)
        };
        assert!(is_alone_after(&[("h1", a_while_ago), ("h2", a_while_ago)], &[]));
        assert!(is_alone_after(&[("h0", longer_ago), ("h1", a_while_ago), ("h2", a_while_ago)], &[]));
        assert!(!is_alone_after(&[("h1", a_while_ago), ("h2", a_while_ago)], &["h3"]), "one is heard");
        assert!(!is_alone_after(&[("h1", a_while_ago)], &[]), "either of two hosts may be the one that failed");
        assert!(!is_alone_after(&[("h1", longer_ago), ("h2", a_while_ago)], &[]), "one failed after the other");
        assert!(!is_alone_after(&[], &[]), "none came");
    }
}
