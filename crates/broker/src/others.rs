//! The other hosts of a cluster, as its master sees them: which files they may have open, and the questions that the master asks of them.
//!
//! A host counts as having a file open from before its request is carried out until it has said that it closed it. A host whose link has ended
//! goes on doing I/O on what it knows, so it counts until it is there again, or a person says that it is gone. After a change of the master a
//! host that has not said what it holds may have any file open.
//!
//! A host of which nothing was heard for the host timeout is *silent*. Where servers can shut it out, whoever needs its answer has that done
//! ([`crate::fencing`]), and it counts no more: it *departs*. What was under way with it at that time is given up.

use crate::guard;
use crate::host_messages::{FromAgent, Known, ToAgent, decode, encode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stripewise_layout::FileId;
use stripewise_store::protocol::Refusal;

/// What nothing was heard of for so long may be silent soon.
const LATE: Duration = Duration::from_millis(2500);
/// How often a host that was not heard of is looked at.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The way to a host.
pub(crate) trait Line: Send + Sync {
    /// Waits for the answer, at most `patience`; an error says in words why there is none.
    fn ask(&self, question: &[u8], patience: Duration) -> Result<Vec<u8>, String>;

    /// Of this line alone, in this process.
    fn number(&self) -> u64;

    /// When anything came over it last; of a host that lives and can be reached that is at most about a second ago.
    fn last_heard(&self) -> Instant;

    /// Ends the line. The host comes back over another, and says again what it holds.
    fn end(&self);
}

struct Seat {
    line: Option<Arc<dyn Line>>,
    /// Since when there is no line, if there is none.
    lost: Instant,
    /// `None`: it has not said, and may have any.
    files: Option<BTreeSet<FileId>>,
    /// It was the master before this one.
    was_master: bool,
}

impl Seat {
    fn may_have(&self, file: FileId) -> bool {
        self.files.as_ref().is_none_or(|files| files.contains(&file))
    }

    fn last_heard(&self) -> Instant {
        self.line.as_ref().map_or(self.lost, |line| line.last_heard())
    }

    /// Its answer can be expected.
    fn is_heard(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.last_heard().elapsed() < LATE)
    }
}

/// The other hosts.
pub(crate) struct Others {
    seats: Mutex<BTreeMap<String, Seat>>,
    changed: Condvar,
    timeout: Duration,
    /// Of the last file that was shut; higher under every later master.
    turn: AtomicU64,
    first_turn: u64,
    /// Raised whenever a host departs.
    departures: AtomicU64,
    /// Hosts that were shut out, with the highest admission that is no more.
    shut_out: Mutex<BTreeMap<String, u64>>,
}

impl Others {
    /// Those of `expected` were there under the last master. `timeout`: after which a host counts as silent. Files are shut in turns that are numbered from
    /// `first_turn` on.
    pub(crate) fn new(expected: impl IntoIterator<Item = String>, timeout: Duration, first_turn: u64) -> Self {
        let seats = expected
            .into_iter()
            .map(|host| (host, Seat { line: None, lost: Instant::now(), files: None, was_master: false }))
            .collect();
        Self {
            seats: Mutex::new(seats),
            changed: Condvar::new(),
            timeout,
            turn: AtomicU64::new(first_turn),
            first_turn,
            departures: AtomicU64::new(0),
            shut_out: Mutex::default(),
        }
    }

    /// A host is there, with these files open.
    pub(crate) fn holds(&self, host: &str, line: Arc<dyn Line>, files: Vec<FileId>) {
        let files = Some(files.into_iter().collect());
        let seat = Seat { line: Some(line), lost: Instant::now(), files, was_master: false };
        guard(&self.seats).insert(host.to_owned(), seat);
        self.changed.notify_all();
    }

    /// The host was the last master, and nothing was heard of it since `heard`. The start of its successor does not wait for it: what needs its
    /// answer does, file by file.
    pub(crate) fn was_master(&self, host: &str, heard: Instant) {
        if let Some(seat) = guard(&self.seats).get_mut(host).filter(|seat| seat.line.is_none()) {
            (seat.was_master, seat.lost) = (true, heard);
        }
    }

    /// Its line of this number has ended, over which something was heard last at that time; what it has open it still has.
    pub(crate) fn lost(&self, host: &str, line: u64, heard: Instant) {
        if let Some(seat) = guard(&self.seats).get_mut(host)
            && seat.line.as_ref().is_some_and(|there| there.number() == line)
        {
            (seat.line, seat.lost) = (None, heard);
        }
    }

    /// It does not take part in what is under way any more: it is shut out, or a person says that it is gone.
    pub(crate) fn departs(&self, host: &str) {
        self.leaves(host);
        self.departures.fetch_add(1, SeqCst);
    }

    /// How many hosts have departed. What needs the same hosts from its begin to its end compares.
    pub(crate) fn departures(&self) -> u64 {
        self.departures.load(SeqCst)
    }

    /// Held while hosts are admitted or shut out, one at a time: which of them were shut out under this master, and up to which admission.
    pub(crate) fn shut_out(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        guard(&self.shut_out)
    }

    /// Whether the number was given out by [`Self::next_turn`] under this master, or may be by a later one.
    pub(crate) fn is_of_this_master(&self, number: u64) -> bool {
        number > self.first_turn
    }

    /// Whether the line is the one over which the host has said last what it holds.
    pub(crate) fn is_line_of(&self, host: &str, number: u64) -> bool {
        let seats = guard(&self.seats);
        seats.get(host).and_then(|seat| seat.line.as_ref()).is_some_and(|line| line.number() == number)
    }

    /// Whether there is a line to it.
    pub(crate) fn answers(&self, host: &str) -> bool {
        guard(&self.seats).get(host).is_some_and(|seat| seat.line.is_some())
    }

    pub(crate) fn is_there(&self, host: &str) -> bool {
        guard(&self.seats).contains_key(host)
    }

    /// Hosts that may have the file open and of which nothing was heard for the host timeout.
    pub(crate) fn silent_hosts_of(&self, file: FileId) -> Vec<String> {
        let seats = guard(&self.seats);
        let silent = seats.iter().filter(|(_, seat)| seat.may_have(file) && self.is_silent(seat));
        silent.map(|(host, _)| host.clone()).collect()
    }

    fn is_silent(&self, seat: &Seat) -> bool {
        seat.last_heard().elapsed() >= self.timeout
    }

    /// Ends the line of a host that is silent; false: it is not.
    pub(crate) fn end_silent(&self, host: &str) -> bool {
        let mut seats = guard(&self.seats);
        let Some(seat) = seats.get_mut(host).filter(|seat| self.is_silent(seat)) else { return false };
        seat.lost = seat.last_heard();
        if let Some(line) = seat.line.take() {
            line.end();
        }
        true
    }

    /// It has nothing open and ends.
    pub(crate) fn leaves(&self, host: &str) {
        guard(&self.seats).remove(host);
        self.changed.notify_all();
    }

    /// Waits until every host that was there under the last master is there again, at most the time after which it is silent; not for the last master itself.
    /// Returns those that are not.
    pub(crate) fn wait_for_expected(&self) -> Vec<String> {
        let is_missing = |seat: &Seat| seat.files.is_none();
        let seats = guard(&self.seats);
        let waited = self.changed.wait_timeout_while(seats, self.timeout, |seats| {
            seats.values().any(|seat| is_missing(seat) && !seat.was_master)
        });
        let seats = waited.unwrap_or_else(PoisonError::into_inner).0;
        seats.iter().filter(|(_, seat)| is_missing(seat)).map(|(host, _)| host.clone()).collect()
    }

    /// Each host, whether there is a line to it, and how many files it has open if that is known.
    pub(crate) fn list(&self) -> Vec<(String, bool, Option<u64>)> {
        let shown = |(host, seat): (&String, &Seat)| {
            (host.clone(), seat.line.is_some(), seat.files.as_ref().map(|files| files.len() as u64))
        };
        guard(&self.seats).iter().map(shown).collect()
    }

    /// Files that a host has said to have open.
    pub(crate) fn files_of(&self, host: &str) -> Vec<FileId> {
        let seats = guard(&self.seats);
        seats
            .get(host)
            .and_then(|seat| seat.files.as_ref())
            .map_or_else(Vec::new, |files| files.iter().copied().collect())
    }

    /// To be called before a host's open of the file is carried out.
    pub(crate) fn opens(&self, host: &str, file: FileId) {
        if let Some(files) = guard(&self.seats).get_mut(host).and_then(|seat| seat.files.as_mut()) {
            files.insert(file);
        }
    }

    pub(crate) fn closes(&self, host: &str, file: FileId) {
        if let Some(files) = guard(&self.seats).get_mut(host).and_then(|seat| seat.files.as_mut()) {
            files.remove(&file);
        }
    }

    /// A host that may have the file open, if there is one.
    pub(crate) fn host_of(&self, file: FileId) -> Option<String> {
        guard(&self.seats).iter().find(|(_, seat)| seat.may_have(file)).map(|(host, _)| host.clone())
    }

    pub(crate) fn has(&self, file: FileId) -> bool {
        self.host_of(file).is_some()
    }

    /// Refused while another host may have the file open.
    pub(crate) fn refuse_if_elsewhere(&self, file: FileId) -> Result<(), Refusal> {
        match self.host_of(file) {
            Some(host) => Err(Refusal::Busy { file, holder: format!("host {host}, which has the file open") }),
            None => Ok(()),
        }
    }

    /// Waits for hosts but `except` that may have the file open and were not heard of for a moment, until they are heard of or silent: a change of the
    /// master ends all lines.
    pub(crate) fn wait_for_lines(&self, file: FileId, except: Option<&str>) {
        let left = |seats: &BTreeMap<String, Seat>| {
            let awaited = seats
                .iter()
                .filter(|(host, seat)| seat.may_have(file) && !seat.is_heard() && except != Some(host.as_str()));
            awaited.map(|(_, seat)| self.timeout.saturating_sub(seat.last_heard().elapsed())).max().unwrap_or_default()
        };
        let mut seats = guard(&self.seats);
        loop {
            let left = left(&seats);
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(seats, left.min(CHECK_INTERVAL));
            (seats, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Asks every host but `except` that may have the file open, all of them together. Each may take `work` in addition to what an answer takes.
    fn ask_all(
        &self,
        file: FileId,
        except: Option<&str>,
        question: &ToAgent,
        work: Duration,
    ) -> Vec<Result<FromAgent, Refusal>> {
        let (mut asked, mut answers) = (Vec::new(), Vec::new());
        for (host, seat) in guard(&self.seats).iter().filter(|(host, _)| except != Some(host.as_str())) {
            match (&seat.files, &seat.line) {
                (Some(files), _) if !files.contains(&file) => {}
                (_, Some(line)) => asked.push((host.clone(), Arc::clone(line))),
                (_, None) => answers.push(Err(silent(file, host, "its link has ended"))),
            }
        }
        let must_know = matches!(question, ToAgent::Move { .. } | ToAgent::Show { .. });
        let (question, patience) = (encode(question), self.timeout + work);
        let ask = |host: &str, line: &dyn Line| {
            let answer = line.ask(&question, patience).and_then(|answer| decode::<FromAgent>(&answer));
            if answer.is_err() && must_know {
                // It may have heard the question, or hear it still: it is to come back, and is told again how things stand.
                line.end();
            }
            match answer.map_err(|why| silent(file, host, &why))? {
                FromAgent::Refused(refusal) => Err(refusal),
                answer => Ok(answer),
            }
        };
        match &asked[..] {
            [] => {}
            [(host, line)] => answers.push(ask(host, line.as_ref())),
            _ => std::thread::scope(|scope| {
                let ask = &ask;
                let asking: Vec<_> =
                    asked.iter().map(|(host, line)| (host, scope.spawn(move || ask(host, line.as_ref())))).collect();
                for (host, asked) in asking {
                    answers.push(asked.join().unwrap_or_else(|_| Err(silent(file, host, "its question failed"))));
                }
            }),
        }
        answers
    }

    /// The longest that a host but `except` knows of the file; sizes from before cut number `truncations` say nothing. What a host that does not answer
    /// has promised to anybody it has told before.
    pub(crate) fn size_of(&self, file: FileId, except: Option<&str>, truncations: u64) -> u64 {
        self.wait_for_lines(file, except);
        let answers = self.ask_all(file, except, &ToAgent::Size { file }, Duration::ZERO);
        longest(answers.iter().flatten(), truncations)
    }

    /// Lets no host begin I/O on the file and waits until what is under way has ended; returns the longest that one knows of the file. All stay shut until
    /// [`Self::open`], also after an error.
    pub(crate) fn shut(&self, file: FileId, truncations: u64) -> Result<u64, Refusal> {
        self.wait_for_lines(file, None);
        let turn = self.next_turn();
        let answers = self.ask_all(file, None, &ToAgent::Shut { file, turn }, Duration::ZERO);
        let answers = answers.into_iter().collect::<Result<Vec<_>, Refusal>>()?;
        Ok(longest(&answers, truncations))
    }

    /// Lets I/O go on. A host that does not hear of it learns when it comes back.
    pub(crate) fn open(&self, file: FileId, known: Known) {
        let turn = self.turn.load(Relaxed);
        self.ask_all(file, None, &ToAgent::Open { file, turn, known }, Duration::ZERO);
    }

    /// The turn of what begins now; later ones are higher, also under a later master.
    pub(crate) fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Relaxed) + 1
    }

    /// Asks every host that may have the file open. An error: one of them did not do it.
    pub(crate) fn ask_of(&self, file: FileId, question: &ToAgent, work: Duration) -> Result<Vec<FromAgent>, Refusal> {
        self.ask_all(file, None, question, work).into_iter().collect()
    }
}

fn silent(file: FileId, host: &str, why: &str) -> Refusal {
    Refusal::Busy {
        file,
        holder: format!(
            "host {host}, which does not answer ({why}); it may have the file open. If it is gone for good, `stripewise host forget {host}`"
        ),
    }
}

fn longest<'a>(answers: impl IntoIterator<Item = &'a FromAgent>, truncations: u64) -> u64 {
    let known = answers.into_iter().filter_map(|answer| match answer {
        FromAgent::Size(Some(known)) if known.truncations >= truncations => Some(known.size_bytes),
        _ => None,
    });
    known.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent(u64);

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

    fn others(expected: &[&str]) -> Others {
        Others::new(expected.iter().map(|host| (*host).to_owned()), EVER, 0)
    }

    #[test]
    fn the_last_master_is_not_waited_for_at_the_start_and_may_have_any_file_all_the_same() {
        let others = others(&["h0", "h1"]);
        others.was_master("h0", Instant::now());
        others.holds("h1", Arc::new(Silent(1)), Vec::new());
        assert_eq!(others.wait_for_expected(), ["h0"]);
        let file = FileId(7);
        assert_eq!(others.host_of(file).as_deref(), Some("h0"));
        assert!(others.refuse_if_elsewhere(file).unwrap_err().to_string().contains("h0"));
        others.holds("h0", Arc::new(Silent(2)), Vec::new());
        assert!(others.wait_for_expected().is_empty());
        assert!(!others.has(file));
    }

    #[test]
    fn a_host_is_silent_from_when_it_was_heard_last() {
        let others = Others::new(["h0".to_owned(), "h1".to_owned()], Duration::from_secs(5), 0);
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
        assert!(others.list().contains(&("h1".to_owned(), true, Some(1))));
    }
}
