//! The other hosts of a cluster, as its master sees them: which files they may have open, and the questions that the master asks of them.
//!
//! A host counts as having a file open from before its request is carried out until it has said that it closed it. A host whose link has ended
//! goes on doing I/O on what it knows, so it counts until it is there again, or a person says that it is gone. After a change of the master a
//! host that has not said what it holds may have any file open.
//!
//! A host of which nothing was heard for most of the host timeout is *silent*. Where servers can shut it out, whoever needs its answer has that done
//! ([`crate::fencing`]), and it counts no more: it *departs*. What was under way with it at that time is given up. The rest of the host timeout is for
//! that.

pub(crate) mod alone;
pub(crate) mod namesakes;
#[cfg(test)]
mod tests;

use crate::agent_counts::AgentCounts;
use crate::agent_identity::AgentIdentity;
use crate::complaints::Complaints;
use crate::guard;
use crate::host_messages::{FromAgent, Known, ToAgent, decode, encode};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stripewise_coherence::seats::Seat;
use stripewise_layout::FileId;
use stripewise_store::protocol::{AgentInfo, HostInfo, QuestionDirection, Refusal};

/// What nothing was heard of for so long may be silent soon.
const LATE: Duration = Duration::from_millis(2500);
/// How often a host that was not heard of is looked at.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for the answer to a question that was asked; returns as well how long it took.
pub(crate) type Begun<'l> = Box<dyn FnOnce() -> (Duration, Result<Vec<u8>, String>) + 'l>;

/// The way to a host.
pub(crate) trait Line: Send + Sync {
    /// Waits for the answer, at most `patience`; an error says in words why there is none.
    fn ask(&self, question: &[u8], patience: Duration) -> Result<Vec<u8>, String>;

    /// As [`Self::ask`], but only asks. `None`: even asking would wait.
    fn begin(&self, _question: &[u8], _patience: Duration) -> Option<Result<Begun<'_>, String>> {
        None
    }

    /// Of this line alone, in this process.
    fn number(&self) -> u64;

    /// When anything came over it last; of a host that lives and can be reached that is at most about a second ago.
    fn last_heard(&self) -> Instant;

    /// Whose agent is at its other end, if that is known.
    fn identity(&self) -> AgentIdentity {
        AgentIdentity::default()
    }

    /// Ends the line. The host comes back over another, and says again what it holds.
    fn end(&self);
}

/// The way to a host, as far as there is one.
struct Link {
    line: Option<Arc<dyn Line>>,
    /// Whose this or the last line is.
    agent: AgentIdentity,
    /// Since when there is no line, if there is none.
    lost: Instant,
    /// It was the master before this one.
    was_master: bool,
    /// It came under this master.
    has_come: bool,
}

impl Link {
    fn last_heard(&self) -> Instant {
        self.line.as_ref().map_or(self.lost, |line| line.last_heard())
    }

    /// Its answer can be expected.
    fn is_heard(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.last_heard().elapsed() < LATE)
    }

    fn is_silent(&self, silence: Duration) -> bool {
        self.last_heard().elapsed() >= silence
    }

    fn is_over(&self, line: u64) -> bool {
        self.line.as_ref().is_some_and(|there| there.number() == line)
    }
}

type Seats = stripewise_coherence::seats::Seats<String, Link>;

/// The other hosts.
pub(crate) struct Others {
    seats: Mutex<Seats>,
    changed: Condvar,
    /// An answer is waited for so long.
    timeout: Duration,
    /// A host of which nothing was heard for so long is silent.
    silence: Duration,
    /// Held while hosts are admitted or shut out.
    admission: Mutex<()>,
    /// The agents that came, and the numbers by which they were admitted last.
    agents: Mutex<BTreeMap<String, (AgentInfo, u64)>>,
    counts: Arc<AgentCounts>,
    /// Hosts that could not be shut out, and why.
    pub(crate) complaints: Complaints<(String, String)>,
}

impl Others {
    /// Those of `expected` were there under the last master. `timeout`: most of it makes a host silent. Files are shut in turns that are numbered from
    /// `first_turn` on.
    pub(crate) fn new(
        expected: impl IntoIterator<Item = (String, AgentIdentity)>,
        timeout: Duration,
        first_turn: u64,
        counts: &Arc<AgentCounts>,
    ) -> Self {
        let link = |agent| Link { line: None, agent, lost: Instant::now(), was_master: false, has_come: false };
        let seats = Seats::new(expected.into_iter().map(|(host, agent)| (host, link(agent))), first_turn);
        Self {
            seats: Mutex::new(seats),
            changed: Condvar::new(),
            timeout,
            silence: timeout - timeout / 20,
            admission: Mutex::default(),
            agents: Mutex::default(),
            counts: Arc::clone(counts),
            complaints: Complaints::default(),
        }
    }

    /// The host's agent is admitted by this number.
    pub(crate) fn arrives(&self, host: &str, agent: AgentInfo, admission: u64) {
        guard(&self.agents).insert(host.to_owned(), (agent, admission));
    }

    /// A host is there, with these files open.
    pub(crate) fn holds(&self, host: &str, line: Arc<dyn Line>, files: Vec<FileId>) {
        let agent = line.identity();
        let link = Link { line: Some(line), agent, lost: Instant::now(), was_master: false, has_come: true };
        guard(&self.seats).holds(host.to_owned(), link, files);
        self.changed.notify_all();
    }

    /// The host was the last master, and nothing was heard of it since `heard`. The start of its successor does not wait for it: what needs its
    /// answer does, file by file.
    pub(crate) fn was_master(&self, host: &str, heard: Instant) {
        if let Some(seat) = guard(&self.seats).get_mut(host).filter(|seat| seat.link.line.is_none()) {
            (seat.link.was_master, seat.link.lost) = (true, heard);
        }
    }

    /// Its line of this number has ended, over which something was heard last at that time; what it has open it still has.
    pub(crate) fn lost(&self, host: &str, line: u64, heard: Instant) {
        if let Some(seat) = guard(&self.seats).get_mut(host).filter(|seat| seat.link.is_over(line)) {
            (seat.link.line, seat.link.lost) = (None, heard);
        }
    }

    /// It does not take part in what is under way any more: it is shut out, or a person says that it is gone.
    pub(crate) fn departs(&self, host: &str) {
        guard(&self.seats).departs(host);
        self.changed.notify_all();
    }

    /// How many hosts have departed. What needs the same hosts from its begin to its end compares.
    pub(crate) fn departures(&self) -> u64 {
        guard(&self.seats).departures()
    }

    /// Held while hosts are admitted or shut out, one at a time.
    pub(crate) fn admission(&self) -> MutexGuard<'_, ()> {
        guard(&self.admission)
    }

    /// The number by which a host may say what it holds.
    pub(crate) fn admit(&self) -> u64 {
        guard(&self.seats).admit()
    }

    /// Whether it still may: this master has admitted it, and it was not shut out since.
    pub(crate) fn is_admitted(&self, host: &str, admission: u64) -> bool {
        guard(&self.seats).is_admitted(host, admission)
    }

    /// What the host was told before holds no more; servers shut out whoever was admitted by a number below this one.
    pub(crate) fn begins_to_shut_out(&self, host: &str) -> u64 {
        guard(&self.seats).begins_to_shut_out(host.to_owned())
    }

    /// Whether the line is the one over which the host has said last what it holds.
    pub(crate) fn is_line_of(&self, host: &str, number: u64) -> bool {
        guard(&self.seats).get(host).is_some_and(|seat| seat.link.is_over(number))
    }

    /// Whether there is a line to it.
    pub(crate) fn answers(&self, host: &str) -> bool {
        guard(&self.seats).get(host).is_some_and(|seat| seat.link.line.is_some())
    }

    pub(crate) fn is_there(&self, host: &str) -> bool {
        guard(&self.seats).get(host).is_some()
    }

    /// Hosts that may have the file open and are silent.
    pub(crate) fn silent_hosts_of(&self, file: FileId) -> Vec<String> {
        let seats = guard(&self.seats);
        seats.of(file).filter(|(_, seat)| seat.link.is_silent(self.silence)).map(|(host, _)| host.clone()).collect()
    }

    /// Whether the host is silent.
    pub(crate) fn is_host_silent(&self, host: &str) -> bool {
        guard(&self.seats).get(host).is_some_and(|seat| seat.link.is_silent(self.silence))
    }

    /// Ends the line of a host that is silent; false: it is not.
    pub(crate) fn end_silent(&self, host: &str) -> bool {
        let mut seats = guard(&self.seats);
        let Some(seat) = seats.get_mut(host).filter(|seat| seat.link.is_silent(self.silence)) else { return false };
        seat.link.lost = seat.link.last_heard();
        if let Some(line) = seat.link.line.take() {
            line.end();
        }
        true
    }

    /// It has nothing open and ends.
    pub(crate) fn leaves(&self, host: &str) {
        guard(&self.seats).leaves(host);
        self.changed.notify_all();
    }

    /// Waits until every host that was there under the last master is there again, at most the time after which it is silent; not for the last master itself.
    /// Returns those that are not.
    pub(crate) fn wait_for_expected(&self) -> Vec<String> {
        let seats = guard(&self.seats);
        let waited = self.changed.wait_timeout_while(seats, self.silence, |seats| {
            seats.iter().any(|(_, seat)| seat.files.is_none() && !seat.link.was_master)
        });
        let seats = waited.unwrap_or_else(PoisonError::into_inner).0;
        seats.iter().filter(|(_, seat)| seat.files.is_none()).map(|(host, _)| host.clone()).collect()
    }

    /// Each host.
    pub(crate) fn list(&self) -> Vec<HostInfo> {
        let agents = guard(&self.agents).clone();
        let seats = guard(&self.seats);
        let shown = |(host, seat): (&String, &Seat<Link>)| {
            let (agent, admission) = agents.get(host).cloned().unzip();
            HostInfo {
                name: host.clone(),
                is_master: false,
                answers: seat.link.line.is_some(),
                files: seat.files.as_ref().map(|files| files.len() as u64),
                agent,
                admission,
                unheard_ms: u64::try_from(seat.link.last_heard().elapsed().as_millis()).unwrap_or(u64::MAX),
                is_silent: seat.link.is_silent(self.silence),
            }
        };
        seats.iter().map(shown).collect()
    }

    /// The ways to all hosts that are heard of.
    pub(crate) fn lines(&self) -> Vec<(String, Arc<dyn Line>)> {
        let seats = guard(&self.seats);
        let heard = seats.iter().filter(|(_, seat)| seat.link.is_heard());
        heard.filter_map(|(host, seat)| Some((host.clone(), Arc::clone(seat.link.line.as_ref()?)))).collect()
    }

    /// Files that a host has said to have open.
    pub(crate) fn files_of(&self, host: &str) -> Vec<FileId> {
        let seats = guard(&self.seats);
        let files = seats.get(host).and_then(|seat| seat.files.as_ref());
        files.map_or_else(Vec::new, |files| files.iter().copied().collect())
    }

    /// To be called before a host's open of the file is carried out.
    pub(crate) fn opens(&self, host: &str, file: FileId) {
        guard(&self.seats).opens(host, file);
    }

    /// It was told of a file that it had open before it came back.
    pub(crate) fn reopens(&self, host: &str, file: FileId) {
        guard(&self.seats).reopens(host, file);
        self.changed.notify_all();
    }

    /// Waits for hosts that are coming back with the file open, at most until they are silent; false: there was none. The file's lock must be free.
    pub(crate) fn wait_for_coming(&self, file: FileId) -> bool {
        let seats = guard(&self.seats);
        if !seats.is_coming(file) {
            return false;
        }
        drop(self.changed.wait_timeout_while(seats, self.silence, |seats| seats.is_coming(file)));
        true
    }

    pub(crate) fn closes(&self, host: &str, file: FileId) {
        guard(&self.seats).closes(host, file);
    }

    /// A host that may have the file open, if there is one.
    pub(crate) fn host_of(&self, file: FileId) -> Option<String> {
        guard(&self.seats).of(file).next().map(|(host, _)| host.clone())
    }

    pub(crate) fn has(&self, file: FileId) -> bool {
        self.host_of(file).is_some()
    }

    /// Refused while another host may have the file open than the one that asks.
    pub(crate) fn refuse_if_elsewhere(&self, file: FileId, asking: Option<&str>) -> Result<(), Refusal> {
        let seats = guard(&self.seats);
        let mut others = seats.iter().filter(|(host, seat)| asking != Some(host.as_str()) && seat.may_have(file));
        match others.next().map(|(host, _)| host) {
            Some(host) => Err(Refusal::Busy { file, holder: format!("host {host}, which has the file open") }),
            None => Ok(()),
        }
    }

    /// Waits for hosts but `except` that may have the file open and were not heard of for a moment, until they are heard of or silent: a change of the
    /// master ends all lines.
    pub(crate) fn wait_for_lines(&self, file: FileId, except: Option<&str>) {
        let left = |seats: &Seats| {
            let awaited = seats.of(file).filter(|(host, seat)| !seat.link.is_heard() && except != Some(host.as_str()));
            let left = awaited.map(|(_, seat)| self.silence.saturating_sub(seat.link.last_heard().elapsed()));
            left.max().unwrap_or_default()
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
        for (host, seat) in guard(&self.seats).of(file).filter(|(host, _)| except != Some(host.as_str())) {
            match &seat.link.line {
                Some(line) => asked.push((host.clone(), Arc::clone(line))),
                None => answers.push(Err(silent(file, host, "its link has ended"))),
            }
        }
        // Without an answer to these it would act on what is so no longer, and nobody would tell it.
        let must_know = matches!(question, ToAgent::Move { .. } | ToAgent::Show { .. } | ToAgent::Open { .. });
        let (kind, question, patience) = (question.kind(), encode(question), self.timeout + work);
        let judge = |host: &str, line: &dyn Line, took: Duration, answer: Result<Vec<u8>, String>| {
            let answer = answer.and_then(|answer| decode::<FromAgent>(&answer));
            self.counts.note_question(QuestionDirection::ToAgent, kind, took, answer.is_ok());
            if answer.is_err() && must_know {
                // It may have heard the question, or hear it still: it is to come back, and is told again how things stand.
                line.end();
            }
            match answer.map_err(|why| silent(file, host, &why))? {
                FromAgent::Refused(refusal) => Err(refusal),
                answer => Ok(answer),
            }
        };
        let ask = |host: &str, line: &dyn Line| {
            let begun = Instant::now();
            let answer = line.ask(&question, patience);
            judge(host, line, begun.elapsed(), answer)
        };
        // All are asked before the first answer is waited for; a thread waits for each host that so much was asked of that asking waits.
        let begun: Vec<_> = asked.iter().map(|(_, line)| line.begin(&question, patience)).collect();
        std::thread::scope(|scope| {
            let ask = &ask;
            let (mut begun_ones, mut asking) = (Vec::new(), Vec::new());
            for ((host, line), begun) in asked.iter().zip(begun) {
                match begun {
                    Some(begun) => begun_ones.push((host, line, begun)),
                    None => asking.push((host, scope.spawn(move || ask(host, line.as_ref())))),
                }
            }
            for (host, line, begun) in begun_ones {
                let (took, answer) = begun.map_or_else(|why| (Duration::ZERO, Err(why)), |wait| wait());
                answers.push(judge(host, line.as_ref(), took, answer));
            }
            for (host, asked) in asking {
                answers.push(asked.join().unwrap_or_else(|_| Err(silent(file, host, "its question failed"))));
            }
        });
        answers
    }

    /// Asks one host, whatever it has open; it may take `work` in addition to what an answer takes. An error says why there is no answer; `None`: the host
    /// has no agent.
    pub(crate) fn ask_host(&self, host: &str, question: &ToAgent, work: Duration) -> Result<FromAgent, Option<String>> {
        let line = match guard(&self.seats).get(host) {
            Some(seat) => seat.link.line.clone().ok_or_else(|| Some("its link has ended".to_owned()))?,
            None => return Err(None),
        };
        let answer = line.ask(&encode(question), self.timeout + work).map_err(Some)?;
        decode(&answer).map_err(Some)
    }

    /// The longest that a host but `except` knows of the file; sizes from before cut number `truncations` say nothing. With what is said of a host that does not
    /// answer, if there is one: its programs may have been told of more ([`crate::sizes`]).
    pub(crate) fn size_of(&self, file: FileId, except: Option<&str>, truncations: u64) -> (u64, Option<Refusal>) {
        self.wait_for_lines(file, except);
        let answers = self.ask_all(file, except, &ToAgent::Size { file }, Duration::ZERO);
        (longest(answers.iter().flatten(), truncations), answers.into_iter().find_map(Result::err))
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
        self.ask_all(file, None, &ToAgent::Open { file, turn: self.last_turn(), known }, Duration::ZERO);
    }

    /// The turn of what begins now; later ones are higher, also under a later master.
    pub(crate) fn next_turn(&self) -> u64 {
        guard(&self.seats).next_turn()
    }

    /// The last that was given out.
    pub(crate) fn last_turn(&self) -> u64 {
        guard(&self.seats).last_turn()
    }

    /// Asks every host that is known, one after the other, until one does not do it.
    pub(crate) fn ask_everybody(&self, question: &ToAgent) -> Vec<(String, Result<FromAgent, String>)> {
        let lines: Vec<_> =
            guard(&self.seats).iter().map(|(host, seat)| (host.clone(), seat.link.line.clone())).collect();
        let (kind, question) = (question.kind(), encode(question));
        let mut answers = Vec::new();
        for (host, line) in lines {
            let line = line.ok_or_else(|| "its link has ended".to_owned());
            let ask = |line: Arc<dyn Line>| {
                let ask = || line.ask(&question, self.timeout).and_then(|answer| decode::<FromAgent>(&answer));
                self.counts.time(QuestionDirection::ToAgent, kind, ask)
            };
            let answer = line.and_then(ask);
            let is_done = matches!(answer, Ok(FromAgent::Done));
            answers.push((host, answer));
            if !is_done {
                break;
            }
        }
        answers
    }

    /// Asks every host that may have the file open. An error: one of them did not do it.
    pub(crate) fn ask_of(&self, file: FileId, question: &ToAgent, work: Duration) -> Result<Vec<FromAgent>, Refusal> {
        self.ask_each(file, question, work).into_iter().collect()
    }

    /// The same, with what came of each.
    pub(crate) fn ask_each(&self, file: FileId, question: &ToAgent, work: Duration) -> Vec<Result<FromAgent, Refusal>> {
        self.ask_all(file, None, question, work)
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
