//! What the machines run in: hosts with programs, messages that go astray, a mapping table, and servers that store whatever reaches them.
//!
//! One file of one region and two units, of which the second is written, moved and truncated. What is not of the protocol is as small as can be: an object has one
//! value, copying is one step, and `store`'s own tests show why a lane and a word are enough on one host.

use super::master::{Change, Master};
use crate::host::{HostView, Known, Message, News, Shared};
use std::cell::RefCell;
use stripewise_layout::{FileId, RegionIndex};

pub(super) const HOSTS: usize = 3;
pub(super) const FILE: FileId = FileId(1);
pub(super) const REGION: RegionIndex = RegionIndex(0);
pub(super) const SLOT: u8 = 0;
/// Values of the unit: before anything, as written, and as truncated.
pub(super) const FIRST: u8 = 1;
pub(super) const WRITTEN: u8 = 2;
pub(super) const HOLE: u8 = 0;

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// Servers can shut hosts out.
    pub(super) fences: bool,
    pub(super) moves: u8,
    pub(super) truncates: bool,
    /// Hosts whose programs write and read once.
    pub(super) writer: Option<usize>,
    pub(super) reader: Option<usize>,
    /// A host on which the file is opened in the middle.
    pub(super) opens: Option<usize>,
    /// A host that may close the file when its program is done.
    pub(super) closes: Option<usize>,
    pub(super) faults: Faults,
}

/// What may go wrong yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Faults {
    /// How often a message is lost, is heard twice, is given up and heard late.
    pub(super) lost: u8,
    pub(super) repeated: u8,
    pub(super) late: u8,
    /// How often a writer takes too long.
    pub(super) slow: u8,
    /// How often the agent of a host that follows is killed, and another takes its place.
    pub(super) killed: u8,
    /// A host that nobody hears of for a while.
    pub(super) silent: Option<usize>,
    /// The host that is master next.
    pub(super) next_master: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Motion {
    Still,
    Moving,
    Sealed,
}

/// A file's shared memory on one host.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Memory {
    pub(super) word: Option<(u8, Motion)>,
    pub(super) is_marked: bool,
    pub(super) is_shut: bool,
    pub(super) size: u64,
    /// As of which truncation it has its size.
    pub(super) truncations: u64,
}

impl Memory {
    pub(super) fn set_motion(&mut self, from: &[Motion], to: Motion) -> bool {
        match &mut self.word {
            Some((_, motion)) if from.contains(motion) => {
                *motion = to;
                true
            }
            _ => false,
        }
    }
}

impl Shared for RefCell<Memory> {
    fn is_absent(&self, _: RegionIndex) -> bool {
        self.borrow().word.is_none()
    }
    fn follow(&self, _: RegionIndex, slot: u8) -> bool {
        self.clear_marks(slot);
        self.borrow_mut().set_motion(&[Motion::Still], Motion::Moving)
    }
    fn clear_marks(&self, _: u8) {
        self.borrow_mut().is_marked = false;
    }
    fn seal(&self, _: RegionIndex, _: u8) -> bool {
        self.borrow_mut().set_motion(&[Motion::Moving], Motion::Sealed)
    }
    fn unseal(&self, _: RegionIndex, _: u8) {
        self.borrow_mut().set_motion(&[Motion::Sealed], Motion::Moving);
    }
    fn give_up(&self, _: RegionIndex, _: u8) {
        self.borrow_mut().set_motion(&[Motion::Moving, Motion::Sealed], Motion::Still);
    }
    fn retract(&self, _: RegionIndex) {
        self.borrow_mut().word = None;
    }
    // Programs look all the time here.
    fn wake_writers(&self) {}
    fn shut_gate(&self) {
        self.borrow_mut().is_shut = true;
    }
    fn open_gate(&self) {
        self.borrow_mut().is_shut = false;
    }
    fn is_gate_shut(&self) -> bool {
        self.borrow().is_shut
    }
    fn extend_to(&self, size_bytes: u64) {
        let mut memory = self.borrow_mut();
        memory.size = memory.size.max(size_bytes);
    }
    fn truncate_to(&self, size_bytes: u64) {
        self.borrow_mut().size = size_bytes;
    }
    fn truncations(&self) -> u64 {
        self.borrow().truncations
    }
    fn note_truncations(&self, truncations: u64) {
        self.borrow_mut().truncations = truncations;
    }
}

/// How a host has the file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Opened {
    Closed,
    /// The master is asked.
    Asked,
    /// It counts the host among those that have the file open.
    Counted,
    Answered(Snapshot),
    Open,
    /// The master is asked to close it.
    Closing,
    /// It does not count the host any more, which does not know so yet.
    Forgotten,
    /// The host was shut out: what its programs had open is lost.
    Lost,
}

/// What an agent does.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Role {
    Master,
    Follows,
    /// Its link has ended, and it comes back.
    Ended,
    Joined {
        admission: u64,
        is_shut_out: bool,
    },
    Held,
    Reopened(Snapshot),
}

/// The file as the answer to a request shows it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Snapshot {
    pub(super) news: News,
    pub(super) place: u8,
}

/// What the host asks where a program needs the region.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Place {
    Known,
    Asked,
    Answered(Snapshot),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Host {
    pub(super) role: Role,
    /// Messages over other links are not heard.
    pub(super) link: u8,
    pub(super) heard: HostView,
    pub(super) opened: Opened,
    pub(super) memory: Memory,
    pub(super) place: Place,
    pub(super) is_silent: bool,
    /// What it sends to servers has no effect.
    pub(super) is_fenced: bool,
}

impl Host {
    /// Whether programs can use the file.
    pub(super) fn has_memory(&self) -> bool {
        matches!(self.opened, Opened::Open | Opened::Closing | Opened::Forgotten)
    }

    /// Has the host's side look at the memory that programs have.
    pub(super) fn with_memory<T>(&mut self, act: impl FnOnce(&mut HostView, Option<&RefCell<Memory>>) -> T) -> T {
        if !self.has_memory() {
            return act(&mut self.heard, None);
        }
        let memory = RefCell::new(self.memory.clone());
        let result = act(&mut self.heard, Some(&memory));
        self.memory = memory.into_inner();
        result
    }

    /// As `HostFile::show` does. False: it is to be asked again.
    pub(super) fn show(&mut self, snapshot: &Snapshot) -> bool {
        if !self.heard.is_news(&snapshot.news) {
            return false;
        }
        let is_new = self.opened != Opened::Open || matches!(self.role, Role::Reopened(_));
        if !self.has_memory() {
            self.memory =
                Memory { word: None, is_marked: false, is_shut: false, size: snapshot.news.size_bytes, truncations: 0 };
        } else if is_new {
            self.memory.word = None;
        }
        self.opened = Opened::Open;
        self.with_memory(|heard, memory| {
            if let Some(memory) = memory {
                heard.take_news(memory, is_new, &snapshot.news);
            }
        });
        if self.memory.word.map(|(place, _)| place) != Some(snapshot.place) {
            let motion = match self.heard.motion(REGION) {
                None | Some((crate::host::Stage::Over, _)) => Motion::Still,
                Some((crate::host::Stage::Moving, _)) => Motion::Moving,
                Some((crate::host::Stage::Sealed, _)) => Motion::Sealed,
            };
            self.memory.word = Some((snapshot.place, motion));
        }
        true
    }

    pub(super) fn known(&self) -> Known {
        Known { size_bytes: self.memory.size, truncations: self.memory.truncations }
    }
}

/// What the master asks hosts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Question {
    Step(Message),
    Stop(u64),
    Resume(u64, Known),
    Show(Snapshot),
    Drain,
}

/// A program's one access.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Access {
    Idle,
    Inside {
        place: u8,
        marks: bool,
        since: Past,
    },
    /// The server has it.
    Landed {
        marks: bool,
    },
    Done,
    Failed,
}

/// What had happened when an access began.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Past {
    pub(super) is_written: bool,
    pub(super) is_truncated: bool,
}

/// What has happened, as far as others were told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct History {
    pub(super) write_begun: bool,
    /// The write began after the truncation had ended.
    pub(super) write_is_later: bool,
    pub(super) truncation_begun: bool,
    /// The other way around.
    pub(super) truncation_is_later: bool,
    /// The truncation has taken effect, whether or not somebody was told.
    pub(super) is_effective: bool,
    pub(super) past: Past,
}

impl History {
    /// Whether whoever began with `since` may find the value now.
    pub(super) fn allows(&self, value: u8, since: Past) -> bool {
        match value {
            FIRST => !since.is_written && !since.is_truncated,
            WRITTEN => self.write_begun && !(since.is_truncated && self.truncation_is_later),
            _ => self.truncation_begun && !(since.is_written && self.write_is_later),
        }
    }
}

/// What outlives masters.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Table {
    pub(super) term: u8,
    pub(super) place: u8,
    pub(super) discards: u8,
    pub(super) size: u64,
    pub(super) is_truncating: bool,
    /// The truncation has taken effect.
    pub(super) is_truncated: bool,
    /// As a master counts them: as of the last one.
    pub(super) truncations: u64,
    pub(super) hosts: [bool; HOSTS],
    pub(super) shut_out: [bool; HOSTS],
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    pub(super) fences: bool,
    pub(super) hosts: [Host; HOSTS],
    pub(super) masters: Vec<Master>,
    pub(super) table: Table,
    /// By generation.
    pub(super) objects: [Option<u8>; 4],
    pub(super) writer: Option<(usize, Access)>,
    pub(super) reader: Option<(usize, Access)>,
    pub(super) opens: Option<usize>,
    pub(super) closes: Option<usize>,
    /// Messages that somebody has given up, or that come again.
    pub(super) astray: Vec<(usize, u8, Question)>,
    pub(super) faults: Faults,
    pub(super) moves_left: u8,
    /// Given out so far.
    pub(super) generations: u8,
    pub(super) truncation: Change,
    /// How often it may be tried again, after a host was just coming back.
    pub(super) tries: u8,
    pub(super) history: History,
    pub(super) wrong: Option<&'static str>,
}

#[cfg(test)]
impl World {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let host = |number: usize| {
            let memory =
                Memory { word: Some((0, Motion::Still)), is_marked: false, is_shut: false, size: 2, truncations: 0 };
            let is_open = scenario.opens != Some(number);
            Host {
                role: if number == 0 { Role::Master } else { Role::Follows },
                link: number as u8,
                heard: HostView::default(),
                opened: if is_open { Opened::Open } else { Opened::Closed },
                memory,
                place: Place::Known,
                is_silent: false,
                is_fenced: false,
            }
        };
        let begins = |host: Option<usize>| host.map(|host| (host, Access::Idle));
        let table = Table {
            term: 1,
            place: 0,
            discards: 0,
            size: 2,
            is_truncating: false,
            is_truncated: false,
            truncations: 0,
            hosts: [true; HOSTS],
            shut_out: [false; HOSTS],
        };
        let hosts = [host(0), host(1), host(2)];
        let master = Master::first(&hosts);
        let mut hosts = hosts;
        for host in hosts.iter_mut().skip(1).filter(|host| host.opened == Opened::Open) {
            let memory = RefCell::new(host.memory.clone());
            host.heard.take_news(&memory, true, &master.snapshot(2).news);
            host.memory = memory.into_inner();
        }
        Self {
            fences: scenario.fences,
            masters: vec![master],
            hosts,
            table,
            objects: [Some(FIRST), None, None, None],
            writer: begins(scenario.writer),
            reader: begins(scenario.reader),
            opens: scenario.opens,
            closes: scenario.closes,
            astray: Vec::new(),
            faults: scenario.faults,
            moves_left: scenario.moves,
            generations: 1,
            truncation: if scenario.truncates { Change::Wanted } else { Change::Over },
            tries: 1,
            history: History::default(),
            wrong: None,
        }
    }

    pub(super) fn is_wrong(&mut self, what: &'static str) {
        self.wrong.get_or_insert(what);
    }

    /// Whether a program of the host is inside the region.
    pub(super) fn is_inside(&self, host: usize, readers_too: bool) -> bool {
        let inside = |access: &Option<(usize, Access)>| {
            access.as_ref().is_some_and(|(of, access)| {
                *of == host && matches!(access, Access::Inside { .. } | Access::Landed { .. })
            })
        };
        inside(&self.writer) || readers_too && inside(&self.reader)
    }
}
