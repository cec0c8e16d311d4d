//! The words of a file's regions: where each one is, its replicas, and whether it moves.

use super::super::map::SharedMap;
use super::super::marking::{self, Marks, Motion};
use super::layouts::Layouts;
use super::{ControlError, MAX_REGIONS, MAX_REPLICAS, REGION_BYTES_AT, REGIONS_AT, REPLICAS_AT};
use rustix::fd::AsFd;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use stripewise_layout::{FileId, Generation, Layout, RegionGeometry, RegionIndex, StripeView};

const MOVES_AT: usize = 64;
const RETRACTIONS_AT: usize = 120;
const REGIONS_END: usize = REGIONS_AT + MAX_REGIONS as usize * 8;

/// What the control block says of one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionState<'a> {
    /// Never placed: no object exists, all zeros.
    Absent,
    /// While it moves, this is where it lies until the move is published.
    Placed {
        /// Of the objects at the place; replicas have generations of their own.
        generation: Generation,
        /// Layout of the place, borrowed from the mapping.
        view: StripeView<'a>,
        /// Whether it moves, and whether there are replicas.
        motion: Motion,
        /// Only the first [`narrow_bytes`] of the region may be written: the objects of its other stripes are made before more is.
        is_narrow: bool,
    },
}

/// What may be written of a narrow region, in bytes from its start: one stripe, which lies at the same place of the same object when the region has
/// got its other stripes.
#[must_use]
#[inline]
pub fn narrow_bytes(view: StripeView<'_>) -> u64 {
    view.stripes().first().map_or(0, |stripe| u64::from(stripe.size_bytes))
}

/// Whether a broker writes such a word, whatever its layout is.
fn is_known(word: u64) -> bool {
    marking::is_narrow(word) || Motion::of(word).in_word(word) == word
}

/// One word for each region, and for each of its replicas.
#[derive(Clone, Copy, Debug)]
pub struct Regions<'a> {
    map: &'a SharedMap,
}

impl<'a> Regions<'a> {
    #[inline]
    pub(super) fn new(map: &'a SharedMap) -> Self {
        Self { map }
    }

    /// The region's present state. One load; the view borrows the mapping.
    #[must_use]
    #[inline]
    pub fn get(&self, region: RegionIndex) -> RegionState<'a> {
        if region.0 >= MAX_REGIONS {
            return RegionState::Absent;
        }
        // Ordered after the caller's lane: see `crate::shared::marking`.
        let word = self.load_word(region);
        if word & 0xff == 0 {
            return RegionState::Absent;
        }
        let (generation, view) = self.place_in(word);
        RegionState::Placed { generation, view, motion: Motion::of(word), is_narrow: marking::is_narrow(word) }
    }

    /// Whether the region has no place here.
    #[must_use]
    pub fn is_absent(&self, region: RegionIndex) -> bool {
        self.get(region) == RegionState::Absent
    }

    /// Bytes of a file of `size_bytes` that lie in placed regions. No server knows more cheaply what the file occupies: holes within regions and bytes
    /// reserved beyond the size are not told apart.
    #[must_use]
    pub fn placed_bytes(&self, size_bytes: u64) -> u64 {
        let geometry = RegionGeometry::new(self.map.word(REGION_BYTES_AT).load(Relaxed).max(1));
        let count = geometry.count_for(size_bytes).min(MAX_REGIONS);
        let Some(last) = count.checked_sub(1) else { return 0 };
        let words = self.map.words(REGIONS_AT, count as usize);
        let is_placed = |word: &&AtomicU64| word.load(Relaxed) & 0xff != 0;
        let whole = words[..last as usize].iter().filter(is_placed).count() as u64 * geometry.region_bytes();
        let rest = words[last as usize..].iter().filter(is_placed).count() as u64;
        whole + rest * geometry.used_bytes(RegionIndex(last), size_bytes)
    }

    /// The replicas of a region whose state is [`Motion::Replicated`], in the order of their numbers. To be called inside a lane.
    pub fn replicas(&self, region: RegionIndex) -> impl Iterator<Item = (Generation, StripeView<'a>)> + use<'a> {
        let regions = *self;
        self.replica_words(region).iter().filter_map(move |word| match word.load(SeqCst) {
            0 => None,
            word => Some(regions.place_in(word)),
        })
    }

    /// Whether objects of this generation belong to the region now, as its place or as a replica.
    #[must_use]
    pub fn shows(&self, region: RegionIndex, generation: Generation) -> bool {
        match self.get(region) {
            RegionState::Absent => false,
            RegionState::Placed { generation: place, motion, .. } => {
                let is_replica = || self.replicas(region).any(|(replica, _)| replica == generation);
                place == generation || (motion == Motion::Replicated && is_replica())
            }
        }
    }

    fn replica_words(&self, region: RegionIndex) -> &'a [AtomicU64] {
        let region = region.0.min(MAX_REGIONS - 1) as usize;
        self.map.words(REPLICAS_AT + region * MAX_REPLICAS * 8, MAX_REPLICAS)
    }

    /// Broker only: a placed region has these replicas, by their numbers, and no others. Not while it moves, but from the seal on.
    ///
    /// # Errors
    ///
    /// [`ControlError::LayoutsFull`], or [`ControlError::Os`] with `NOSPC`; never after
    /// [`Self::learn`] and [`Self::reserve_replicas`].
    pub fn show_replicas<'b>(
        &self,
        file: FileId,
        region: RegionIndex,
        replicas: impl IntoIterator<Item = (u8, Generation, &'b Layout)>,
    ) -> Result<(), ControlError> {
        let (mut words, mut has_any) = ([0; MAX_REPLICAS], false);
        for (number, generation, layout) in replicas {
            let at = self.layouts().find_or_add(file, layout)? as u64;
            words[usize::from(number) % MAX_REPLICAS] = Motion::Still.in_word(u64::from(generation.0) << 32 | at << 8);
            has_any = true;
        }
        let before = self.load_word(region);
        let had_any = Motion::of(before) == Motion::Replicated;
        if has_any {
            self.reserve_replicas(region)?;
        } else if had_any {
            self.word(region).store(Motion::Still.in_word(before), SeqCst);
        } else {
            // Nobody looks at its replica words, which may have no space.
            return Ok(());
        }
        for (shared, own) in self.replica_words(region).iter().zip(words) {
            shared.store(own, SeqCst);
        }
        if has_any {
            self.word(region).store(Motion::Replicated.in_word(before), SeqCst);
        }
        Ok(())
    }

    /// Broker only: gives the replica words of a region room, so that [`Self::show_replicas`] with layouts that were learnt cannot fail.
    ///
    /// # Errors
    ///
    /// [`ControlError::Os`]; `NOSPC` when the state directory is full.
    pub fn reserve_replicas(&self, region: RegionIndex) -> Result<(), ControlError> {
        let region = region.0.min(MAX_REGIONS - 1) as usize;
        Ok(self.map.reach(REPLICAS_AT + region * MAX_REPLICAS * 8, MAX_REPLICAS * 8)?)
    }

    /// What a word that is not 0 says of a place.
    #[inline]
    fn place_in(&self, word: u64) -> (Generation, StripeView<'a>) {
        (Generation((word >> 32) as u32), self.layouts().at((word >> 8 & 0xff_ffff) as usize))
    }

    #[inline]
    fn layouts(&self) -> Layouts<'a> {
        Layouts::new(self.map)
    }

    #[inline]
    fn word_at(region: RegionIndex) -> usize {
        REGIONS_AT + region.0 as usize * 8
    }

    #[inline]
    fn word(&self, region: RegionIndex) -> &'a AtomicU64 {
        self.map.word(Self::word_at(region))
    }

    /// The word of a region, which may have no space yet.
    #[inline]
    fn load_word(&self, region: RegionIndex) -> u64 {
        if self.map.is_reached(Self::word_at(region), 8) { self.word(region).load(SeqCst) } else { 0 }
    }

    /// Broker only: a placed region begins to move in a move slot.
    pub fn begin_move(&self, region: RegionIndex, slot: u8, marks: Marks<'_, AtomicU64>, chunks: usize) {
        marking::begin(self.word(region), marks, chunks, slot);
    }

    /// As [`Self::begin_move`], of a move that another host's broker makes; false if the region has no place here, which then [`Self::publish_in`] shows.
    #[must_use]
    pub fn follow_move(&self, region: RegionIndex, slot: u8, marks: Marks<'_, AtomicU64>) -> bool {
        !self.is_absent(region) && marking::follow(self.word(region), marks, slot)
    }

    /// Broker only, as [`Self::unseal`] and [`Self::give_up_move`]; see [`marking::seal`].
    #[must_use]
    pub fn seal(&self, region: RegionIndex, slot: u8) -> bool {
        marking::seal(self.word(region), slot)
    }

    /// A sealed region moves again, and its writers go on; false if it was not sealed in this slot.
    #[must_use]
    pub fn unseal(&self, region: RegionIndex, slot: u8) -> bool {
        let unsealed = marking::unseal(self.word(region), slot);
        self.let_writers_go_on();
        unsealed
    }

    /// The region stays where it is, unless it no longer moves in this slot.
    pub fn give_up_move(&self, region: RegionIndex, slot: u8) -> bool {
        let ended = marking::give_up(self.word(region), slot);
        self.let_writers_go_on();
        ended
    }

    /// Broker only: after the word of a sealed region was changed.
    pub fn let_writers_go_on(&self) {
        let moves = self.moves_word();
        moves.fetch_add(1, SeqCst);
        let _ = rustix::thread::futex::wake(moves, rustix::thread::futex::Flags::empty(), i32::MAX as u32);
    }

    /// What writers of sealed regions wait on, as a futex.
    #[must_use]
    pub fn moves_word(&self) -> &'a AtomicU32 {
        self.map.half(MOVES_AT)
    }

    /// Broker only: takes the layout in, so that [`Self::publish`] of the region with it cannot fail for want of space.
    ///
    /// # Errors
    ///
    /// [`ControlError::TooManyRegions`], [`ControlError::LayoutsFull`], or [`ControlError::Os`]
    /// with `NOSPC` when the state directory is full.
    pub fn learn(&self, file: FileId, region: RegionIndex, layout: &Layout) -> Result<(), ControlError> {
        if region.0 >= MAX_REGIONS {
            return Err(ControlError::TooManyRegions { file, region });
        }
        self.map.reach(Self::word_at(region), 8)?;
        self.layouts().find_or_add(file, layout).map(|_| ())
    }

    /// Broker only: publishes a placement whose objects exist.
    ///
    /// # Errors
    ///
    /// Those of [`Self::learn`]; none if that went well before.
    pub fn publish(
        &self,
        file: FileId,
        region: RegionIndex,
        generation: Generation,
        layout: &Layout,
    ) -> Result<(), ControlError> {
        self.publish_in(Motion::Still, file, region, generation, layout)
    }

    /// As [`Self::publish`], of a region that is in this motion.
    ///
    /// # Errors
    ///
    /// As of [`Self::publish`].
    pub fn publish_in(
        &self,
        motion: Motion,
        file: FileId,
        region: RegionIndex,
        generation: Generation,
        layout: &Layout,
    ) -> Result<(), ControlError> {
        let place = self.place_word(file, region, generation, layout)?;
        self.word(region).store(motion.in_word(place), SeqCst);
        Ok(())
    }

    /// As [`Self::publish`], of a region that has no object but that of its first stripe, which `layout` is.
    ///
    /// # Errors
    ///
    /// As of [`Self::publish`].
    pub fn publish_narrow(
        &self,
        file: FileId,
        region: RegionIndex,
        generation: Generation,
        layout: &Layout,
    ) -> Result<(), ControlError> {
        let place = self.place_word(file, region, generation, layout)?;
        self.word(region).store(marking::narrow_word(place), SeqCst);
        Ok(())
    }

    /// Generation and layout as they stand in the word of a region that has room.
    fn place_word(
        &self,
        file: FileId,
        region: RegionIndex,
        generation: Generation,
        layout: &Layout,
    ) -> Result<u64, ControlError> {
        self.learn(file, region, layout)?;
        let number = self.layouts().find_or_add(file, layout)?;
        Ok(u64::from(generation.0) << 32 | (number as u64) << 8)
    }

    /// How often a region lost its word. As long as the number is the same, a region that was absent still is for the same reason: it has no objects, and was
    /// not merely taken from this host's view.
    #[must_use]
    #[inline]
    pub fn retractions(&self) -> u32 {
        self.map.half(RETRACTIONS_AT).load(SeqCst)
    }

    /// Broker only: the region has no objects any more, or this host has to ask where they are.
    pub fn retract(&self, region: RegionIndex) {
        let before = self.load_word(region);
        if before == 0 {
            return;
        }
        self.map.half(RETRACTIONS_AT).fetch_add(1, SeqCst);
        self.word(region).store(0, SeqCst);
        if Motion::of(before) == Motion::Replicated {
            self.replica_words(region).iter().for_each(|word| word.store(0, SeqCst));
        }
    }

    /// What is wrong with a block that is to be taken over: words that no broker writes, or regions that do not lie where the mapping table says they
    /// do. `regions` are those of the table, in order; words are looked at up to `count` regions. `None`: nothing is.
    #[must_use]
    pub fn find_damage<'l>(
        &self,
        regions: impl Iterator<Item = (RegionIndex, Generation, &'l Layout)>,
        count: u32,
    ) -> Option<String> {
        let starts = match self.layouts().numbers() {
            Ok(starts) => starts,
            Err(damage) => return Some(damage),
        };
        let mut regions = regions.peekable();
        for region in (0..count.min(MAX_REGIONS)).map(RegionIndex) {
            let recorded = regions.next_if(|(of, ..)| *of == region);
            let word = self.load_word(region);
            if word == 0 {
                continue;
            }
            if !starts.contains(&(word >> 8 & 0xff_ffff)) || !is_known(word) {
                return Some(format!("region {region} has the word {word:#x}"));
            }
            let is_narrow = marking::is_narrow(word);
            let (generation, view) = self.place_in(word);
            match recorded {
                // Committed and not published: the one who takes over publishes it.
                Some((_, other, _)) if generation != other => {}
                Some((.., layout)) if layout.stripes() == view.stripes() => {}
                // So does one that got its other stripes.
                Some((.., layout)) if is_narrow && layout.stripes().first() == view.stripes().first() => {}
                Some(_) => return Some(format!("region {region} does not lie where the mapping table says")),
                None => return Some(format!("region {region} is not in the mapping table")),
            }
        }
        None
    }

    /// Broker only: retracts the words below `count` of regions that the mapping table lacks, and lets writers that wait there look again. On one host such a
    /// word is damage, since words go before records do. A host that shares the file may have missed the end of a truncation. `recorded` are the regions of the
    /// table, in order. A word that no broker writes stays, for [`Self::find_damage`]. Returns how many there were.
    pub fn retract_unrecorded(&self, recorded: impl Iterator<Item = RegionIndex>, count: u32) -> u32 {
        let Ok(starts) = self.layouts().numbers() else { return 0 };
        let (mut recorded, mut retracted) = (recorded.peekable(), 0);
        for region in (0..count.min(MAX_REGIONS)).map(RegionIndex) {
            if recorded.next_if_eq(&region).is_some() {
                continue;
            }
            let word = self.load_word(region);
            if word != 0 && starts.contains(&(word >> 8 & 0xff_ffff)) && is_known(word) {
                self.retract(region);
                retracted += 1;
            }
        }
        if retracted > 0 {
            self.let_writers_go_on();
        }
        retracted
    }

    /// Broker only: clears the words of all regions from number `count` on, of which the mapping table knows none. What [`Self::find_damage`] has not
    /// looked at must not be believed when the file grows. Returns how many there were; `descriptor` is the block's file.
    ///
    /// # Errors
    ///
    /// The error of searching or reading `descriptor`; words that were found before it are cleared.
    pub fn clear_from(&self, descriptor: impl AsFd, count: u32) -> rustix::io::Result<u32> {
        let (mut at, mut cleared) = (Self::word_at(RegionIndex(count.min(MAX_REGIONS))) as u64, 0);
        let mut words = vec![0; 64 << 10];
        while at < REGIONS_END as u64 {
            // Read by the kernel: a page without room must not be touched, and gets none here.
            at = match rustix::fs::seek(&descriptor, SeekFrom::Data(at)) {
                Ok(data) => data & !7,
                Err(Errno::NXIO) => break,
                Err(Errno::INVAL) => at,
                Err(errno) => return Err(errno),
            };
            let most = (REGIONS_END as u64).saturating_sub(at).min(words.len() as u64) as usize;
            let read = rustix::io::pread(&descriptor, &mut words[..most], at)?;
            for (number, word) in words[..read].chunks_exact(8).enumerate() {
                if word.iter().any(|byte| *byte != 0) {
                    self.map.word(at as usize + number * 8).store(0, SeqCst);
                    cleared += 1;
                }
            }
            if read == 0 {
                break;
            }
            at += read as u64;
        }
        Ok(cleared)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ControlBlock;
    use super::*;
    use stripewise_layout::ServerId;

    /// Of a truncation whose end the host did not hear.
    #[test]
    fn words_that_the_table_lacks_are_retracted_and_others_and_damaged_ones_stay() {
        let file = FileId(7);
        let control = ControlBlock::build(&tempfile::tempfile().unwrap().into(), file, [1; 16], 4096).unwrap();
        let regions = control.regions();
        let layout = Layout::new([(ServerId(0), 4096), (ServerId(1), 4096)]).unwrap();
        for region in [0, 1, 2, 5].map(RegionIndex) {
            regions.publish(file, region, Generation(3), &layout).unwrap();
        }
        regions.publish_in(Motion::Sealed(2), file, RegionIndex(3), Generation(4), &layout).unwrap();
        let recorded = || [(RegionIndex(2), Generation(3), &layout)].into_iter();
        let numbers = || recorded().map(|(region, ..)| region);
        assert!(regions.find_damage(recorded(), 6).is_some_and(|what| what.contains("is not in the mapping table")));
        let moves = regions.moves_word().load(SeqCst);
        assert_eq!(regions.retract_unrecorded(numbers(), 5), 3);
        assert_ne!(regions.moves_word().load(SeqCst), moves, "who waited for a seal looks again");
        let is_absent = |region| regions.is_absent(RegionIndex(region));
        assert_eq!([0, 1, 2, 3, 4, 5].map(is_absent), [true, true, false, true, true, false]);
        assert_eq!(regions.find_damage(recorded(), 5), None);
        assert_eq!((regions.retractions(), regions.retract_unrecorded(numbers(), 5)), (3, 0));

        let beyond_all_layouts = Motion::Still.in_word(1 << 32 | 0xff_fffe << 8);
        regions.word(RegionIndex(4)).store(beyond_all_layouts, SeqCst);
        assert_eq!(regions.retract_unrecorded(numbers(), 5), 0);
        assert!(regions.find_damage(recorded(), 5).is_some_and(|what| what.contains("has the word")));
    }
}
