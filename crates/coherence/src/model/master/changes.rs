//! What a master does to the whole file: it loads, truncates and frees.

use super::super::world::{FILE, HOLE, Motion, Opened, Question, Role, World};
use super::{Answer, At, Change, FREEING, Lock, Master, Slot, TRUNCATION, Truncation};
use crate::host::Known;
use crate::stopping::{self, Stop};
use crate::truncating::{self, Truncating};

#[cfg(test)]
impl World {
    /// Another host is elected.
    pub(in crate::model) fn change_master(&mut self, next: usize) {
        self.faults.next_master = None;
        self.table.term += 1;
        self.masters.push(Master::next(next, self.table.term, &self.table.hosts));
        self.end_role(next);
        self.hosts[next].role = Role::Master;
        if self.table.shut_out[next] {
            // Before any other master told it so.
            self.lose(next);
        }
        (self.table.hosts[next], self.table.shut_out[next]) = (true, false);
        if self.truncation == Change::UnderWay {
            // Whoever wants it has heard nothing, and asks again.
            self.truncation = Change::Wanted;
        }
    }

    /// As `Loader` does.
    pub(super) fn load(&mut self, m: usize) -> bool {
        if self.masters[m].lock != Lock::Loading {
            return false;
        }
        let host = self.masters[m].host;
        let is_open = self.hosts[host].opened == Opened::Open;
        let place = self.table.place;
        let master = &mut self.masters[m];
        (master.lock, master.place) = (Lock::Free, place);
        for place in (0..4).filter(|place| self.table.discards >> place & 1 == 1) {
            master.discard(place);
        }
        let memory = &mut self.hosts[host].memory;
        memory.word = Some((place, Motion::Still));
        let was_shut = std::mem::take(&mut memory.is_shut);
        let is_known = is_open && (memory.truncations >= self.table.truncations || !was_shut);
        memory.size = if is_known { memory.size.max(self.table.size) } else { self.table.size };
        memory.truncations = self.masters[m].truncations;
        if self.table.is_truncating && (was_shut || !is_open) {
            for act in Truncating::recorded() {
                self.take(m, act);
            }
        }
        self.table.is_truncating = false;
        true
    }

    /// Hosts of the file that are neither heard of nor silent: `Others::wait_for_lines` waits for them.
    pub(super) fn must_wait_for_lines(&self, m: usize) -> bool {
        let mut hosts = self.masters[m].seats.of(FILE);
        hosts.any(|(host, seat)| seat.link.is_none() && !self.hosts[*host].is_silent)
    }

    pub(super) fn truncate(&mut self, m: usize) -> bool {
        let host = self.masters[m].host;
        let Some(mut truncation) = self.masters[m].truncation.clone() else {
            if self.truncation != Change::Wanted || self.masters[m].lock != Lock::Free || !self.is_master(m) {
                return false;
            }
            let mut stop = Stop::default();
            let at = At::Stopping(stop.next(stopping::Outcome::Done));
            self.truncation = Change::UnderWay;
            if !std::mem::replace(&mut self.history.truncation_begun, true) {
                self.history.truncation_is_later = self.history.past.is_written;
            }
            self.masters[m].lock = Lock::Truncation;
            self.masters[m].truncation = Some(Truncation { stop, at, waits: (false, false) });
            return true;
        };
        let outcome = match truncation.at {
            At::Stopping(stopping::Act::Shut) => {
                self.memory_of(m).is_shut = true;
                stopping::Outcome::Done
            }
            At::Stopping(stopping::Act::ShutOut) => {
                if self.must_wait_for_lines(m) {
                    return false;
                }
                if self.shut_out_silent(m) { stopping::Outcome::Done } else { stopping::Outcome::Nothing }
            }
            At::Stopping(stopping::Act::Ask) => {
                if self.masters[m].asks[TRUNCATION].is_none() {
                    let turn = self.masters[m].seats.next_turn();
                    self.ask(m, TRUNCATION, Question::Stop(turn));
                }
                let Some(asks) = self.masters[m].asks[TRUNCATION].take_if(|asks| asks.is_over()) else { return true };
                if asks.is_refused() {
                    stopping::Outcome::Failed
                } else {
                    self.take_sizes(m, &asks);
                    truncation.waits = self.insiders(host);
                    stopping::Outcome::Done
                }
            }
            At::Stopping(stopping::Act::Drain) if self.still_waits(host, truncation.waits) => return false,
            _ => stopping::Outcome::Done,
        };
        truncation.at = match truncation.at {
            At::Stopping(stopping::Act::Refuse) => self.resume(m, true),
            // A master before did it, and could not say so.
            At::Stopping(stopping::Act::Change) if self.table.is_truncated => self.resume(m, false),
            At::Stopping(stopping::Act::Change) => {
                let mut left = Truncating::new();
                left.next().map_or(truncation.at, |act| At::Truncating { act, left })
            }
            At::Stopping(_) => At::Stopping(truncation.stop.next(outcome)),
            At::Truncating { act, mut left } => {
                if !self.take(m, act) {
                    self.masters[m].is_over = true;
                    return true;
                }
                match left.next() {
                    Some(act) => At::Truncating { act, left },
                    None => self.resume(m, false),
                }
            }
            At::Resuming { is_refused } => {
                if self.masters[m].asks[TRUNCATION].take_if(|asks| asks.is_over()).is_none() {
                    return false;
                }
                self.masters[m].lock = Lock::Free;
                self.masters[m].truncation = None;
                // A master that is none any more has nobody to tell.
                if is_refused && self.masters[m].seats.is_coming(FILE) && self.is_master(m) && self.tries > 0 {
                    self.tries -= 1;
                    self.truncation = Change::Wanted;
                } else if self.is_master(m) {
                    self.truncation = Change::Over;
                    self.history.past.is_truncated = self.history.truncation_begun;
                }
                return true;
            }
        };
        self.masters[m].truncation = Some(truncation);
        true
    }

    /// As `Truncation::carry_out`. False: this is no master any more, whose commits are refused.
    fn take(&mut self, m: usize, act: truncating::Act) -> bool {
        let is_master = self.is_master(m);
        match act {
            truncating::Act::EndMoves => self.abandon(m),
            truncating::Act::Record if is_master => {
                self.table.is_truncating = true;
                self.table.truncations = self.masters[m].truncations + 1;
            }
            truncating::Act::Record => {}
            truncating::Act::Remove => {
                self.history.is_effective = true;
                let place = usize::from(self.masters[m].place);
                if self.reaches_servers(m)
                    && let Some(value) = &mut self.objects[place]
                {
                    *value = HOLE;
                }
            }
            truncating::Act::SetSize => {
                self.masters[m].truncations += 1;
                let truncations = self.masters[m].truncations;
                let memory = self.memory_of(m);
                (memory.size, memory.truncations) = (1, truncations);
            }
            truncating::Act::Forget if is_master => {
                let truncations = self.masters[m].truncations;
                (self.table.is_truncating, self.table.size) = (false, 1);
                (self.table.is_truncated, self.table.truncations) = (true, truncations);
            }
            truncating::Act::Forget => {}
        }
        is_master || !matches!(act, truncating::Act::Record | truncating::Act::Forget)
    }

    fn resume(&mut self, m: usize, is_refused: bool) -> At {
        self.memory_of(m).is_shut = false;
        let size_bytes = self.memory_of(m).size;
        let master = &self.masters[m];
        let known = Known { size_bytes, truncations: master.truncations };
        // Unless a master before did it, and could not say so.
        if is_refused && !self.history.is_effective {
            self.history.truncation_begun = false;
        }
        let turn = self.masters[m].seats.last_turn();
        self.ask(m, TRUNCATION, Question::Resume(turn, known));
        At::Resuming { is_refused }
    }

    pub(super) fn free(&mut self, m: usize) -> bool {
        let Some(discard) = self.masters[m].discards.first().cloned() else { return false };
        let host = self.masters[m].host;
        if self.still_waits(host, discard.waits) {
            return false;
        }
        if self.masters[m].asks[FREEING].is_none() {
            if self.must_wait_for_lines(m) {
                return false;
            }
            self.shut_out_silent(m);
            self.ask(m, FREEING, Question::Drain);
            return true;
        }
        let Some(asks) = self.masters[m].asks[FREEING].take_if(|asks| asks.is_over()) else { return false };
        if asks.is_refused() || asks.slots.contains(&Slot::Answered(Answer::Stuck)) {
            return true;
        }
        if discard.place == self.table.place {
            self.is_wrong("the place of the region is removed");
        }
        if self.reaches_servers(m) {
            self.objects[usize::from(discard.place)] = None;
        }
        if self.is_master(m) {
            self.table.discards &= !(1 << discard.place);
        }
        self.masters[m].discards.remove(0);
        true
    }
}
