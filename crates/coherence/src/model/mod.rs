//! The protocol under a model checker: the machines of this crate, in every order in which hosts, threads, programs and messages can act.

mod canonical;
mod hosts;
mod master;
mod scenarios;
mod search;
mod world;

use crate::truncating;
use master::{At, Change};
use search::Explored;
use world::{Access, Faults, HOSTS, Motion, Opened, Place, Role, World};

/// What happens, and to which host or by which master.
type Label = (&'static str, usize);

#[cfg(test)]
impl World {
    /// Whether a truncation has stopped all I/O.
    fn is_changing(&self) -> bool {
        self.masters.iter().filter(|master| master.term == self.table.term).any(|master| {
            let at = master.truncation.as_ref().map(|truncation| truncation.at);
            matches!(at, Some(At::Truncating { act, .. }) if act > truncating::Act::Record)
        })
    }

    fn is_right_at_the_end(&self) -> Result<(), &'static str> {
        let Some(value) = self.objects[usize::from(self.table.place)] else { return Err("the region has no object") };
        if !self.history.allows(value, self.history.past) {
            return Err("the region has not what was written last");
        }
        if self.objects.iter().flatten().count() != 1 || self.table.discards != 0 {
            return Err("an object is left");
        }
        for host in &self.hosts {
            if host.opened != Opened::Open {
                continue;
            }
            let is_known = host.memory.word.is_none_or(|word| word == (self.table.place, Motion::Still));
            if !is_known {
                return Err("a host has a word that is not true");
            }
        }
        let longest = self.hosts.iter().filter(|host| host.opened == Opened::Open).map(|host| host.memory.size).max();
        let wanted = if value == world::HOLE { 1 } else { 2 };
        // Where servers cannot shut a master out, one that stood still may remove what was written since, whose size stays (docs/hosts.md).
        let is_known = self.fences || self.masters.len() == 1 || self.writer.is_none();
        if is_known && self.history.past.is_truncated && longest != Some(wanted) && !self.is_size_lost() {
            return Err("the file has not its size");
        }
        Ok(())
    }

    /// Whether the master hears the host.
    fn is_linked(&self, host: usize) -> bool {
        let seat = self.masters.last().and_then(|master| master.seats.get(&host));
        seat.is_some_and(|seat| seat.link == Some(self.hosts[host].link))
    }

    /// Whether nothing but a host's hearing can become of what it is asked, and nobody can tell when that is: then no other order need be tried.
    fn is_predictable(&self, host: usize) -> bool {
        let runs = |access: &Option<(usize, Access)>| {
            access.as_ref().is_some_and(|(of, access)| *of == host && !matches!(access, Access::Done | Access::Failed))
        };
        self.faults == Faults::default()
            && self.astray.is_empty()
            && self.hosts.iter().all(|host| !host.is_silent)
            && self.is_linked(host)
            && self.hosts[host].role == Role::Follows
            && matches!(self.hosts[host].opened, Opened::Open | Opened::Lost | Opened::Closed)
            && self.opens != Some(host)
            && self.closes != Some(host)
            && !runs(&self.writer)
            && !runs(&self.reader)
    }

    /// The writer's host was shut out. What it had written beyond the size that others knew is lost with its size.
    fn is_size_lost(&self) -> bool {
        self.writer.as_ref().is_some_and(|(host, access)| {
            matches!(access, Access::Failed) || matches!(self.hosts[*host].opened, Opened::Lost)
        })
    }
}

impl Explored for World {
    type Label = Label;

    fn next(&self) -> Vec<(Label, Self)> {
        let mut all = Vec::new();
        for m in (0..self.masters.len()).filter(|m| !self.masters[*m].is_over) {
            self.steps_of_questions(m, &mut all);
        }
        if let Some(number) = all.iter().position(|((_, host), _)| self.is_predictable(*host)) {
            let (label, mut after) = all.swap_remove(number);
            after.make_canonical();
            return vec![(label, after)];
        }
        for m in (0..self.masters.len()).filter(|m| !self.masters[*m].is_over) {
            self.steps_of_master(m, &mut all);
        }
        for host in 0..HOSTS {
            self.steps_of_agent(host, &mut all);
        }
        self.steps_of_astray(&mut all);
        self.steps_of_programs(&mut all);
        all.iter_mut().for_each(|(_, after)| after.make_canonical());
        all
    }

    fn goes_wrong_to(&self, after: &Self) -> bool {
        self.faults != after.faults
    }

    fn fault(&self) -> Option<&'static str> {
        self.wrong.or_else(|| self.is_end().then(|| self.is_right_at_the_end().err()).flatten())
    }

    fn is_end(&self) -> bool {
        let is_still = |host: &world::Host| {
            matches!(host.role, Role::Master | Role::Follows)
                && matches!(host.opened, Opened::Closed | Opened::Open | Opened::Lost)
                && !host.is_silent
                && host.place == Place::Known
                && !(host.memory.is_shut && host.opened == Opened::Open)
        };
        let is_done = |access: &Option<(usize, Access)>| {
            access.as_ref().is_none_or(|(_, access)| matches!(access, Access::Done | Access::Failed))
        };
        self.moves_left == 0
            && self.truncation == Change::Over
            && self.masters.iter().all(|master| master.is_idle() && master.term == self.table.term || master.is_over)
            && self.hosts.iter().all(is_still)
            && (0..HOSTS)
                .all(|host| self.is_linked(host) || self.masters.last().is_some_and(|master| master.host == host))
            && is_done(&self.writer)
            && is_done(&self.reader)
            && self.opens.is_none()
            && self.astray.is_empty()
    }
}
