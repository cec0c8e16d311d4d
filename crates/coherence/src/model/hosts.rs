//! Hosts in the model: what they hear, how they come back, and what their programs do.

use super::Label;
use super::master::{Answer, Asks, FREEING, Lock, MOVER, Master, Slot, TRUNCATION};
use super::world::{Access, FILE, HOSTS, Memory, Motion, Opened, Past, Place, Question, Role, WRITTEN, World};
use crate::host::{HostView, Message, NotTaken, Step, can_answer};
use std::cell::RefCell;

/// What a host makes of a question.
enum Heard {
    Answered(Answer),
    Drains { collects: bool, reader: bool },
}

#[cfg(test)]
impl World {
    fn hear(&mut self, host: usize, question: &Question) -> Heard {
        let hears = &mut self.hosts[host];
        if hears.role != Role::Follows {
            // Without the memory of programs, of which it was not told yet.
            match question {
                Question::Step(message) => drop(hears.heard.take_step(None::<&RefCell<Memory>>, message)),
                Question::Resume(turn, known) => hears.heard.resume(None::<&RefCell<Memory>>, *turn, *known),
                _ => {}
            }
            return Heard::Answered(Answer::Done);
        }
        let done = Heard::Answered(Answer::Done);
        match question {
            Question::Step(message) => {
                use crate::host::Then;
                match hears.with_memory(|heard, memory| heard.take_step(memory, message)) {
                    Err(NotTaken::Late | NotTaken::Unknown | NotTaken::Ended) => Heard::Answered(Answer::Refused),
                    Ok(Then::Answer) => done,
                    Ok(Then::NothingMarked) => Heard::Answered(Answer::Marked { is_marked: false, known: None }),
                    Ok(Then::Drain) => Heard::Drains { collects: false, reader: false },
                    Ok(Then::Collect) => Heard::Answered(self.collect(host)),
                    Ok(Then::DrainAndCollect) => Heard::Drains { collects: true, reader: false },
                }
            }
            Question::Stop(turn) => {
                match hears.with_memory(|heard, memory| heard.stop(memory, *turn) && memory.is_some()) {
                    true => Heard::Drains { collects: false, reader: true },
                    false => Heard::Answered(Answer::Size(None)),
                }
            }
            Question::Resume(turn, known) => {
                hears.with_memory(|heard, memory| heard.resume(memory, *turn, *known));
                done
            }
            Question::Show(snapshot) => {
                if hears.has_memory() {
                    let _ = hears.show(snapshot);
                }
                done
            }
            Question::Drain if hears.has_memory() => Heard::Drains { collects: false, reader: true },
            Question::Drain => done,
        }
    }

    fn collect(&mut self, host: usize) -> Answer {
        let host = &mut self.hosts[host];
        let is_marked = std::mem::take(&mut host.memory.is_marked);
        Answer::Marked { is_marked, known: Some(host.known()) }
    }

    /// What can become of the questions that a master has asked.
    pub(super) fn steps_of_questions(&self, m: usize, all: &mut Vec<(Label, World)>) {
        for task in [MOVER, TRUNCATION, FREEING] {
            let Some(asks) = &self.masters[m].asks[task] else { continue };
            for host in 0..HOSTS {
                self.steps_of_question(m, task, asks, host, all);
            }
        }
    }

    fn steps_of_question(&self, m: usize, task: usize, asks: &Asks, host: usize, all: &mut Vec<(Label, World)>) {
        let slot = &asks.slots[host];
        let (Slot::Sent { link } | Slot::Draining { link, .. }) = *slot else { return };
        let mut step = |label: &'static str, act: &dyn Fn(&mut World) -> Slot| {
            let mut after = self.clone();
            let slot = act(&mut after);
            if slot == Slot::Failed && !matches!(asks.question, Question::Stop(_) | Question::Drain) {
                // It may have heard the question: it is to come back, and is told again how things stand.
                if let Some(seat) = after.masters[m].seats.get_mut(&host).filter(|seat| seat.link == Some(link)) {
                    seat.link = None;
                }
            }
            if let Some(asks) = &mut after.masters[m].asks[task] {
                asks.slots[host] = slot;
            }
            all.push(((label, host), after));
        };
        let listens = &self.hosts[host];
        let is_linked = self.masters[m].seats.get(&host).is_some_and(|seat| seat.link == Some(link));
        if !is_linked || listens.link != link || listens.is_silent {
            step("a question is not answered", &|_| Slot::Failed);
            return;
        }
        if let Slot::Draining { collects, writer, reader, .. } = *slot {
            if !self.still_waits(host, (writer, reader)) {
                step("a host has waited for its programs, and answers", &|world| {
                    world.drained(host, collects, &asks.question)
                });
            } else if self.faults.slow > 0 && matches!(asks.question, Question::Step(_)) {
                step("a program is slow, and its host says so", &|world| {
                    world.faults.slow -= 1;
                    Slot::Answered(Answer::Stuck)
                });
            }
            if self.faults.late > 0 {
                step("a host is not waited for any longer", &|world| {
                    world.faults.late -= 1;
                    if collects {
                        world.hosts[host].memory.is_marked = false;
                    }
                    Slot::Failed
                });
            }
            return;
        }
        if self.faults.lost > 0 {
            step("a question is lost", &|world| {
                world.faults.lost -= 1;
                Slot::Failed
            });
        }
        if self.faults.late > 0 {
            step("a question comes late", &|world| {
                world.faults.late -= 1;
                world.astray.push((host, link, asks.question.clone()));
                Slot::Failed
            });
        }
        let is_over = matches!(asks.question, Question::Resume(..) | Question::Show(_))
            || matches!(asks.question, Question::Step(Message { step: Step::GiveUp, .. }));
        if !is_over && !can_answer(false, listens.role == Role::Follows) {
            step("a host that is coming back refuses", &|_| Slot::Answered(Answer::Refused));
            return;
        }
        let hear = |world: &mut World| match world.hear(host, &asks.question) {
            Heard::Answered(answer) => Slot::Answered(answer),
            Heard::Drains { collects, reader } => {
                let (writer, is_reading) = world.insiders(host);
                let draining = (writer, reader && is_reading);
                if !world.still_waits(host, draining) {
                    return world.drained(host, collects, &asks.question);
                }
                Slot::Draining { link, collects, writer: draining.0, reader: draining.1 }
            }
        };
        step("a host hears a question", &hear);
        if self.faults.lost > 0 {
            step("an answer is lost", &|world| {
                world.faults.lost -= 1;
                let _ = hear(world);
                Slot::Failed
            });
        }
        if self.faults.repeated > 0 {
            step("a host hears a question that comes again", &|world| {
                world.faults.repeated -= 1;
                world.astray.push((host, link, asks.question.clone()));
                hear(world)
            });
        }
    }

    /// A host has waited for its programs.
    fn drained(&mut self, host: usize, collects: bool, question: &Question) -> Slot {
        Slot::Answered(match question {
            Question::Step(message) if !self.hosts[host].heard.takes_part(message.region, message.turn) => {
                Answer::Refused
            }
            _ if collects => self.collect(host),
            Question::Stop(_) => Answer::Size(Some(self.hosts[host].known())),
            _ => Answer::Done,
        })
    }

    /// What can become of messages that nobody waits for.
    pub(super) fn steps_of_astray(&self, all: &mut Vec<(Label, World)>) {
        for (number, (host, link, question)) in self.astray.iter().enumerate() {
            let mut after = self.clone();
            after.astray.remove(number);
            let listens = &self.hosts[*host];
            if listens.link != *link {
                all.push((("a message over a link that has ended is dropped", *host), after));
            } else if listens.role == Role::Follows && !listens.is_silent {
                if let Heard::Drains { collects: true, .. } = after.hear(*host, question) {
                    after.hosts[*host].memory.is_marked = false;
                }
                all.push((("a host hears a message that nobody waits for", *host), after));
            }
        }
    }

    /// How hosts fall silent, come back, open and close the file.
    pub(super) fn steps_of_agent(&self, number: usize, all: &mut Vec<(Label, World)>) {
        let host = &self.hosts[number];
        let mut step = |label: &'static str, act: &dyn Fn(&mut World)| {
            let mut after = self.clone();
            act(&mut after);
            all.push(((label, number), after));
        };
        if self.faults.silent == Some(number) && !host.is_silent {
            step("a host falls silent", &|world| (world.hosts[number].is_silent, world.faults.silent) = (true, None));
        }
        if host.is_silent {
            step("a silent host can be heard again", &|world| world.hosts[number].is_silent = false);
        }
        let m = self.masters.len() - 1;
        let master = &self.masters[m];
        if self.faults.next_master == Some(number) && host.role == Role::Follows && !host.is_silent {
            step("a host is elected", &|world| world.change_master(number));
        }
        if host.is_silent || master.host == number {
            return;
        }
        if host.role == Role::Master {
            step("a master finds that it is none any more", &|world| {
                let old = world.masters.iter_mut().filter(|master| master.host == number);
                old.for_each(|master| master.is_over = true);
                world.end_role(number);
            });
            return;
        }
        if self.faults.killed > 0 && host.role != Role::Ended {
            step("an agent is killed, and another takes its place", &|world| {
                world.faults.killed -= 1;
                world.end_role(number);
            });
        }
        let is_linked = master.seats.get(&number).is_some_and(|seat| seat.link == Some(host.link));
        let is_free = master.lock == Lock::Free;
        match &host.role {
            Role::Follows | Role::Held | Role::Reopened(_) if !is_linked => {
                step("an agent finds its link ended", &|world| world.end_role(number));
            }
            Role::Ended => step("an agent wants to take part", &|world| {
                let admission = world.masters[m].seats.admit();
                let is_shut_out = world.table.shut_out[number];
                world.hosts[number].role = Role::Joined { admission, is_shut_out };
                if is_shut_out {
                    world.lose(number);
                }
            }),
            Role::Joined { admission, .. } => {
                step("an agent says what its host holds", &|world| world.hold(number, m, *admission));
            }
            Role::Held if is_free => step("an open file of a host goes on", &|world| {
                world.masters[m].seats.opens(&number, FILE);
                world.masters[m].seats.reopens(&number, FILE);
                world.abandon(m);
                let host = world.masters[m].host;
                let known = world.hosts[number].known();
                let mut size = world.hosts[host].memory.size;
                world.masters[m].raise_again(&mut size, known, world.table.truncations);
                world.hosts[host].memory.size = size;
                let snapshot = world.masters[m].snapshot(world.hosts[host].memory.size);
                world.hosts[number].role = Role::Reopened(snapshot);
            }),
            Role::Reopened(snapshot) => step("a host shows how the file stands", &|world| {
                let _ = world.hosts[number].show(snapshot);
                world.hosts[number].role = Role::Follows;
            }),
            _ => {}
        }
        // Also one that is none any more, as long as nobody has noticed.
        let is_heard_by = |master: &Master| {
            let seat = master.seats.get(&number);
            !master.is_over && seat.is_some_and(|seat| seat.link == Some(host.link))
        };
        if host.role == Role::Follows
            && let Some(m) = self.masters.iter().position(is_heard_by)
        {
            self.steps_of_requests(number, m, all);
        }
    }

    pub(super) fn end_role(&mut self, number: usize) {
        let host = &mut self.hosts[number];
        (host.role, host.heard, host.place) = (Role::Ended, HostView::default(), Place::Known);
        host.link += HOSTS as u8;
        host.opened = match host.opened {
            Opened::Asked | Opened::Counted | Opened::Answered(_) => {
                self.opens = Some(number);
                Opened::Closed
            }
            // Nobody uses it.
            Opened::Closing | Opened::Forgotten => Opened::Closed,
            ref other => other.clone(),
        };
    }

    /// A host learns that it was shut out. Its agent is another client of the servers from here on, and programs find what they had open lost.
    pub(super) fn lose(&mut self, number: usize) {
        let host = &mut self.hosts[number];
        (host.opened, host.is_fenced) = (Opened::Lost, false);
        for access in [&mut self.writer, &mut self.reader].into_iter().flatten() {
            if access.0 == number && access.1 != Access::Done {
                access.1 = Access::Failed;
            }
        }
    }

    fn hold(&mut self, number: usize, m: usize, admission: u64) {
        if !self.masters[m].seats.is_admitted(&number, admission) {
            self.end_role(number);
            return;
        }
        let host = &mut self.hosts[number];
        let is_open = host.opened == Opened::Open;
        self.masters[m].seats.holds(number, Some(host.link), is_open.then_some(FILE));
        host.role = if is_open { Role::Held } else { Role::Follows };
        (self.table.hosts[number], self.table.shut_out[number]) = (true, false);
    }

    /// What programs of a host make its agent ask.
    fn steps_of_requests(&self, number: usize, m: usize, all: &mut Vec<(Label, World)>) {
        let host = &self.hosts[number];
        let is_free = self.masters[m].lock == Lock::Free;
        let mut step = |label: &'static str, act: &dyn Fn(&mut World)| {
            let mut after = self.clone();
            act(&mut after);
            all.push(((label, number), after));
        };
        let master_host = self.masters[m].host;
        match &host.opened {
            Opened::Closed if self.opens == Some(number) => step("a program opens the file", &|world| {
                (world.hosts[number].opened, world.opens) = (Opened::Asked, None);
            }),
            Opened::Asked => step("the master hears of an open", &|world| {
                world.masters[m].seats.opens(&number, FILE);
                world.hosts[number].opened = Opened::Counted;
            }),
            Opened::Counted if is_free => step("the master answers an open", &|world| {
                let snapshot = world.masters[m].snapshot(world.hosts[master_host].memory.size);
                world.hosts[number].opened = Opened::Answered(snapshot);
            }),
            Opened::Answered(snapshot) => step("a host has the file open", &|world| {
                if !world.hosts[number].show(snapshot) {
                    world.hosts[number].opened = Opened::Counted;
                }
            }),
            Opened::Open if self.closes == Some(number) && self.has_done(number) => {
                step("a program closes the file", &|world| {
                    (world.hosts[number].opened, world.closes) = (Opened::Closing, None);
                });
            }
            Opened::Closing if is_free => step("the master hears of a close", &|world| {
                let known = world.hosts[number].known();
                let mut size = world.hosts[master_host].memory.size;
                world.masters[m].raise(&mut size, known);
                world.hosts[master_host].memory.size = size;
                if world.masters[m].mover.is_some() {
                    world.hosts[master_host].memory.is_marked = true;
                }
                world.masters[m].seats.closes(&number, FILE);
                world.hosts[number].opened = Opened::Forgotten;
            }),
            Opened::Forgotten => step("a host forgets the file", &|world| {
                (world.hosts[number].opened, world.hosts[number].heard) = (Opened::Closed, HostView::default());
            }),
            _ => {}
        }
        match &host.place {
            Place::Asked if is_free => step("the master says where the region lies", &|world| {
                let snapshot = world.masters[m].snapshot(world.hosts[master_host].memory.size);
                world.hosts[number].place = Place::Answered(snapshot);
            }),
            Place::Answered(snapshot) => step("a host shows where the region lies", &|world| {
                let is_shown = world.hosts[number].show(snapshot);
                world.hosts[number].place = if is_shown { Place::Known } else { Place::Asked };
            }),
            _ => {}
        }
    }

    fn has_done(&self, host: usize) -> bool {
        let mut accesses = [&self.writer, &self.reader].into_iter().flatten();
        accesses.all(|(of, access)| *of != host || matches!(access, Access::Done | Access::Failed))
    }

    /// What programs do.
    pub(super) fn steps_of_programs(&self, all: &mut Vec<(Label, World)>) {
        for is_write in [true, false] {
            let Some((host, access)) = (if is_write { &self.writer } else { &self.reader }) else { continue };
            let mut after = self.clone();
            let (label, access) = match access {
                Access::Idle => match after.enter(*host, is_write) {
                    Some(entered) => entered,
                    None => continue,
                },
                // What the agent of a lost master sent has no effect; its successor does it again.
                Access::Inside { .. } if self.is_agent_shut_out(*host) => continue,
                Access::Inside { place, marks, since } => match is_write {
                    true => ("a write reaches its server", after.land(*host, *place, *marks)),
                    false => ("a read reaches its server", after.read(*host, *place, *since)),
                },
                Access::Landed { marks } => ("a write has ended", after.leave(*host, *marks)),
                Access::Done | Access::Failed => continue,
            };
            *(if is_write { &mut after.writer } else { &mut after.reader }) = Some((*host, access));
            all.push(((label, *host), after));
        }
    }

    fn is_agent_shut_out(&self, host: usize) -> bool {
        let mut masters = self.masters.iter();
        self.fences && masters.any(|master| master.host == host && master.term != self.table.term && !master.is_over)
    }

    fn enter(&mut self, number: usize, is_write: bool) -> Option<(&'static str, Access)> {
        let is_master = self.masters.iter().any(|master| master.host == number && !master.is_over);
        let host = &mut self.hosts[number];
        if host.opened == Opened::Lost {
            return Some(("a program finds its file lost", Access::Failed));
        }
        if host.opened != Opened::Open || host.memory.is_shut {
            return None;
        }
        let (place, marks) = match host.memory.word {
            None if host.place == Place::Known && !is_master && host.role == Role::Follows => {
                host.place = Place::Asked;
                return Some(("a program needs a region that its host does not know", Access::Idle));
            }
            None => return None,
            Some((_, Motion::Sealed)) if is_write => return None,
            Some((place, motion)) => (place, motion == Motion::Moving),
        };
        if is_write {
            self.history.write_begun = true;
            self.history.write_is_later = self.history.past.is_truncated;
            host.memory.is_marked |= marks;
        }
        let since = self.history.past;
        Some((if is_write { "a write begins" } else { "a read begins" }, Access::Inside { place, marks, since }))
    }

    fn land(&mut self, host: usize, place: u8, marks: bool) -> Access {
        if self.hosts[host].is_fenced {
            return Access::Failed;
        }
        if place != self.table.place {
            self.is_wrong("a write lands in a place that is not the region's");
        }
        if self.objects[usize::from(place)].is_none() {
            self.is_wrong("a write lands in an object that was removed");
        }
        if self.is_changing() {
            self.is_wrong("a write lands while the file is being truncated");
        }
        self.objects[usize::from(place)] = Some(WRITTEN);
        Access::Landed { marks }
    }

    fn leave(&mut self, number: usize, marks: bool) -> Access {
        let host = &mut self.hosts[number];
        host.memory.is_marked |= marks;
        host.memory.size = host.memory.size.max(2);
        if host.is_fenced {
            return Access::Failed;
        }
        self.history.past.is_written = true;
        Access::Done
    }

    fn read(&mut self, host: usize, place: u8, since: Past) -> Access {
        if self.hosts[host].is_fenced {
            return Access::Failed;
        }
        match self.objects[usize::from(place)] {
            None => self.is_wrong("a read finds an object removed"),
            Some(value) if !self.history.allows(value, since) => {
                self.is_wrong("a read finds what was not there any more, or is not there yet");
            }
            Some(_) => {}
        }
        Access::Done
    }
}
