//! The other hosts of a cluster, as its master sees them: who may have which files open.
//!
//! A host counts as having a file open from before its request is carried out until it has said that it closed it. One whose link has ended goes on doing
//! I/O on what it knows, so it counts until it is there again, or *departs*: it is shut out of the servers, or a person says that it is gone.
//! After a change of the master a host that has not said what it holds may have any file open.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use stripewise_layout::FileId;

/// A host's seat. `L`: what the master keeps of the way to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Seat<L> {
    /// `None`: it has not said, and may have any.
    pub files: Option<BTreeSet<FileId>>,
    /// Of those, such as it had open before it came back, and has not been told of since.
    pub coming: BTreeSet<FileId>,
    /// The way to it.
    pub link: L,
}

impl<L> Seat<L> {
    /// Whether it may have the file open.
    #[must_use]
    pub fn may_have(&self, file: FileId) -> bool {
        self.files.as_ref().is_none_or(|files| files.contains(&file))
    }
}

/// The seats of all other hosts, by name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Seats<H: Ord, L> {
    seats: BTreeMap<H, Seat<L>>,
    /// Hosts that were shut out, with the highest admission that is no more.
    shut_out: BTreeMap<H, u64>,
    departures: u64,
    turn: u64,
    first_turn: u64,
}

impl<H: Ord + Clone, L> Seats<H, L> {
    /// These were there under the last master. Turns are numbered from `first_turn` on.
    pub fn new(expected: impl IntoIterator<Item = (H, L)>, first_turn: u64) -> Self {
        let seats = expected
            .into_iter()
            .map(|(host, link)| (host, Seat { files: None, coming: BTreeSet::new(), link }))
            .collect();
        Self { seats, shut_out: BTreeMap::new(), departures: 0, turn: first_turn, first_turn }
    }

    /// All seats.
    pub fn iter(&self) -> impl Iterator<Item = (&H, &Seat<L>)> {
        self.seats.iter()
    }

    /// The host's seat.
    pub fn get<Q: Ord + ?Sized>(&self, host: &Q) -> Option<&Seat<L>>
    where
        H: Borrow<Q>,
    {
        self.seats.get(host)
    }

    /// The host's seat.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, host: &Q) -> Option<&mut Seat<L>>
    where
        H: Borrow<Q>,
    {
        self.seats.get_mut(host)
    }

    /// Those that may have the file open.
    pub fn of(&self, file: FileId) -> impl Iterator<Item = (&H, &Seat<L>)> {
        self.seats.iter().filter(move |(_, seat)| seat.may_have(file))
    }

    /// The turn of what begins now; later ones are higher, also under a later master.
    pub fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    /// The last that was given out.
    pub fn last_turn(&self) -> u64 {
        self.turn
    }

    /// How many hosts have departed. What needs the same hosts from its begin to its end compares.
    pub fn departures(&self) -> u64 {
        self.departures
    }

    /// A host wants to take part: the admission by which it may.
    pub fn admit(&mut self) -> u64 {
        self.next_turn()
    }

    /// Whether a host with this admission may say what it holds: this master gave it, and the host was not shut out since.
    pub fn is_admitted<Q: Ord + ?Sized>(&self, host: &Q, admission: u64) -> bool
    where
        H: Borrow<Q>,
    {
        admission > self.first_turn && self.shut_out.get(host).is_none_or(|last| *last < admission)
    }

    /// An admitted host is there, with these files open. If it was there before, it knows nothing any more of the moves that it took part in, which counts as
    /// if it had departed in between.
    pub fn holds(&mut self, host: H, link: L, files: impl IntoIterator<Item = FileId>) {
        let files: BTreeSet<FileId> = files.into_iter().collect();
        let seat = Seat { coming: files.clone(), files: Some(files), link };
        self.departures += u64::from(self.seats.insert(host, seat).is_some());
    }

    /// The host was told of a file that it had open before it came back.
    pub fn reopens<Q: Ord + ?Sized>(&mut self, host: &Q, file: FileId)
    where
        H: Borrow<Q>,
    {
        self.seats.get_mut(host).map(|seat| seat.coming.remove(&file));
    }

    /// Whether a host is coming back that has the file open.
    pub fn is_coming(&self, file: FileId) -> bool {
        self.seats.values().any(|seat| seat.coming.contains(&file))
    }

    /// To be called before a host's open of the file is carried out.
    pub fn opens<Q: Ord + ?Sized>(&mut self, host: &Q, file: FileId)
    where
        H: Borrow<Q>,
    {
        if let Some(files) = self.seats.get_mut(host).and_then(|seat| seat.files.as_mut()) {
            files.insert(file);
        }
    }

    /// It has said that it closed the file.
    pub fn closes<Q: Ord + ?Sized>(&mut self, host: &Q, file: FileId)
    where
        H: Borrow<Q>,
    {
        if let Some(files) = self.seats.get_mut(host).and_then(|seat| seat.files.as_mut()) {
            files.remove(&file);
        }
    }

    /// It has nothing open and ends.
    pub fn leaves<Q: Ord + ?Sized>(&mut self, host: &Q)
    where
        H: Borrow<Q>,
    {
        self.seats.remove(host);
    }

    /// A host is about to be shut out of the servers: the number that it is above every admission that it has.
    pub fn begins_to_shut_out(&mut self, host: H) -> u64 {
        let admission = self.next_turn();
        self.shut_out.insert(host, admission);
        admission
    }

    /// It does not take part in what is under way any more: it is shut out, or a person says that it is gone.
    pub fn departs<Q: Ord + ?Sized>(&mut self, host: &Q)
    where
        H: Borrow<Q>,
    {
        self.leaves(host);
        self.departures += 1;
    }
}

#[cfg(test)]
impl<H: Ord, L> Seats<H, L> {
    pub(crate) fn visit_turns(&mut self, visit: &mut dyn FnMut(&mut u64)) {
        self.shut_out.values_mut().for_each(&mut *visit);
        visit(&mut self.turn);
        visit(&mut self.first_turn);
    }

    pub(crate) fn set_departures(&mut self, departures: u64) {
        self.departures = departures;
    }
}
