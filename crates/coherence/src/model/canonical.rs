//! States that nobody can tell apart are one: turns count by their order alone, links by whether they are a host's present one, departures by whether
//! the move under way has seen them, and what nobody will look at any more not at all.

use super::master::{Master, Slot, TERM};
use super::world::{HOSTS, Memory, Opened, Place, Question, Role, Snapshot, World};
use crate::moving::Act;

impl Question {
    fn visit_turns(&mut self, visit: &mut dyn FnMut(&mut u64)) {
        match self {
            Self::Step(message) => visit(&mut message.turn),
            Self::Stop(turn) | Self::Resume(turn, _) => visit(turn),
            Self::Show(snapshot) => snapshot.visit_turns(visit),
            Self::Drain => {}
        }
    }
}

impl Snapshot {
    fn visit_turns(&mut self, visit: &mut dyn FnMut(&mut u64)) {
        visit(&mut self.news.as_of);
        self.news.moves.iter_mut().for_each(|(_, part)| visit(&mut part.turn));
    }
}

impl Master {
    fn visit_turns(&mut self, visit: &mut dyn FnMut(&mut u64)) {
        self.seats.visit_turns(visit);
        if let Some(mover) = &mut self.mover {
            mover.joint.visit_turns(visit);
            if let Act::Ask(message) = &mut mover.act {
                visit(&mut message.turn);
            }
        }
        self.asks.iter_mut().flatten().for_each(|asks| asks.question.visit_turns(visit));
    }

    fn forget_departures(&mut self) {
        let seen = self.seats.departures();
        let is_seen = self.mover.as_mut().is_none_or(|mover| mover.joint.has_seen(seen));
        self.seats.set_departures(u64::from(!is_seen));
    }
}

impl World {
    fn visit_turns(&mut self, visit: &mut dyn FnMut(&mut u64)) {
        for host in &mut self.hosts {
            host.heard.visit_turns(visit);
            match &mut host.role {
                Role::Joined { admission, .. } => visit(admission),
                Role::Reopened(snapshot) => snapshot.visit_turns(visit),
                _ => {}
            }
            if let Opened::Answered(snapshot) = &mut host.opened {
                snapshot.visit_turns(visit);
            }
            if let Place::Answered(snapshot) = &mut host.place {
                snapshot.visit_turns(visit);
            }
        }
        self.masters.iter_mut().for_each(|master| master.visit_turns(visit));
        self.astray.iter_mut().for_each(|(.., question)| question.visit_turns(visit));
    }

    /// Of each term the numbers that are in use, without gaps. The first of a term stays what it is: later ones are drawn above the last.
    fn close_gaps(&mut self) {
        let mut turns: Vec<u64> = Vec::new();
        self.visit_turns(&mut |turn| turns.push(*turn));
        turns.extend(self.masters.iter().map(|master| u64::from(master.term) * TERM));
        turns.push(0);
        turns.sort_unstable();
        turns.dedup();
        self.visit_turns(&mut |turn| {
            let first = *turn / TERM * TERM;
            let below = turns.partition_point(|other| *other < *turn) - turns.partition_point(|other| *other < first);
            *turn = first + below as u64;
        });
    }

    fn rename_links(&mut self) {
        for number in 0..HOSTS {
            let present = self.hosts[number].link;
            let mut links = vec![present];
            self.visit_links(number, &mut |link| links.push(*link));
            links.sort_unstable();
            links.dedup();
            let rename = |link: &mut u8| {
                let rank = links.partition_point(|other| *other < *link);
                *link = (number + rank * HOSTS) as u8;
            };
            self.visit_links(number, &mut |link| rename(link));
            rename(&mut self.hosts[number].link);
        }
    }

    fn visit_links(&mut self, number: usize, visit: &mut dyn FnMut(&mut u8)) {
        for master in &mut self.masters {
            if let Some(link) = master.seats.get_mut(&number).and_then(|seat| seat.link.as_mut()) {
                visit(link);
            }
            for asks in master.asks.iter_mut().flatten() {
                if let Slot::Sent { link } | Slot::Draining { link, .. } = &mut asks.slots[number] {
                    visit(link);
                }
            }
        }
        self.astray.iter_mut().filter(|(host, ..)| *host == number).for_each(|(_, link, _)| visit(link));
    }

    /// Makes it the state that stands for all that nobody can tell from it.
    pub(super) fn make_canonical(&mut self) {
        // A message over a link that has ended is dropped sooner or later, and until then nobody hears it.
        let hosts = &self.hosts;
        self.astray.retain(|(host, link, _)| hosts[*host].link == *link);
        let last = self.masters.len() - 1;
        for master in self.masters[..last].iter_mut().filter(|master| master.is_over) {
            *master = Master::nobody();
        }
        for number in 0..HOSTS {
            let is_master = self.masters.iter().any(|master| master.host == number && !master.is_over);
            let host = &mut self.hosts[number];
            // It starts from nothing when the file is opened again.
            if !is_master && !host.has_memory() {
                host.memory = Memory { word: None, is_marked: false, is_shut: false, size: 0, truncations: 0 };
            }
        }
        if self.moves_left == 0 {
            self.generations = 0;
        }
        self.masters.iter_mut().for_each(Master::forget_departures);
        self.close_gaps();
        self.rename_links();
        if self.astray.len() > 1 {
            self.astray.sort_by_cached_key(|message| format!("{message:?}"));
        }
    }
}
