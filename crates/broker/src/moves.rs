//! Moves of regions, and the threads that run them.
//!
//! | module | what |
//! |---|---|
//! | `aside` | out of the way, where moves wait for each other's space |
//! | `beginning` | what a move needs before it begins |
//! | `moving` | one region's move, step by step |
//! | `copying` | bytes from the old place to the new one |
//! | `foreground` | which servers programs use |
//! | `rescue` | away from a server that became full under a writer |

mod aside;
mod beginning;
mod copying;
mod foreground;
mod moving;
mod rescue;
mod side;

use crate::capacity::Capacity;
use crate::context::Context;
use crate::describing::Describing;
use crate::discards::Discards;
use crate::drained::Drained;
use crate::files::Files;
use crate::fragments::WriteBack;
use crate::log::note;
use crate::managed::{Inner, Managed};
use crate::move_queue::{Class, Entry, MoveQueue, Outcome, pairs};
use crate::objects::Objects;
use crate::placing::Placer;
use crate::quiescing::Quiescing;
use crate::replicas::Replicas;
use crate::threads;
use crate::throttle::Throttle;
use crate::{BrokerError, guard, placements};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use stripewise_layout::{Layout, RegionIndex, ServerClass};
use stripewise_store::protocol::{MoveNumber, MoveOrder, Refusal};
use stripewise_store::shared::control::MAX_REGIONS;

/// Moves that run at the same time: while one seals and syncs, another copies.
const MOVERS: usize = 3;

/// Moves regions to other places, and makes their replicas.
pub(crate) struct Moves {
    context: Arc<Context>,
    capacity: Arc<Capacity>,
    drained: Arc<Drained>,
    quiescing: Arc<Quiescing>,
    describing: Arc<Describing>,
    objects: Arc<Objects>,
    files: Arc<Files>,
    discards: Arc<Discards>,
    throttle: Arc<Throttle>,
    queue: Arc<MoveQueue>,
    replicas: Arc<Replicas>,
    placer: Arc<Placer>,
    write_back: Arc<WriteBack>,
    /// Held while a move begins: objects of neighbouring regions are made in the order of the regions, so that they can lie in order.
    beginning: Mutex<()>,
}

impl Moves {
    #[allow(clippy::too_many_arguments, reason = "one for each part that it uses")]
    pub(crate) fn new(
        context: &Arc<Context>,
        capacity: &Arc<Capacity>,
        drained: &Arc<Drained>,
        quiescing: &Arc<Quiescing>,
        describing: &Arc<Describing>,
        objects: &Arc<Objects>,
        files: &Arc<Files>,
        discards: &Arc<Discards>,
        throttle: &Arc<Throttle>,
        queue: &Arc<MoveQueue>,
        replicas: &Arc<Replicas>,
        placer: &Arc<Placer>,
        write_back: &Arc<WriteBack>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            capacity: Arc::clone(capacity),
            drained: Arc::clone(drained),
            quiescing: Arc::clone(quiescing),
            describing: Arc::clone(describing),
            objects: Arc::clone(objects),
            files: Arc::clone(files),
            discards: Arc::clone(discards),
            throttle: Arc::clone(throttle),
            queue: Arc::clone(queue),
            replicas: Arc::clone(replicas),
            placer: Arc::clone(placer),
            write_back: Arc::clone(write_back),
            beginning: Mutex::default(),
        }
    }
}

/// The threads, until stopped.
pub(crate) struct Movers {
    moves: Arc<Moves>,
    threads: Vec<JoinHandle<()>>,
}

impl Movers {
    pub(crate) fn start(moves: &Arc<Moves>) -> Result<Self, BrokerError> {
        let mut movers = Self { moves: Arc::clone(moves), threads: Vec::with_capacity(MOVERS) };
        for _ in 0..MOVERS {
            let moving = Arc::clone(moves);
            movers.threads.push(threads::spawn("stripewise-mover", move || moving.move_on())?);
        }
        Ok(movers)
    }
}

impl Drop for Movers {
    /// Moves that are not committed are abandoned; their regions stay where they are.
    fn drop(&mut self) {
        self.moves.queue.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Moves {
    /// Queues one move for each region of the orders that has objects; where none are, the placement is changed at once. Returns the number of
    /// the first and how many there are.
    pub(crate) fn queue_moves(&self, orders: &[MoveOrder]) -> Result<(MoveNumber, u64), Refusal> {
        let mut added = Vec::new();
        for order in orders {
            self.check_order(order)?;
            self.files.managed(order.file)?;
        }
        for order in orders {
            let managed = self.files.managed(order.file)?;
            let mut inner = guard(&managed.inner);
            if inner.freed {
                return Err(Refusal::UnknownFile { file: order.file });
            }
            self.place_later_by(&managed, &mut inner, order)?;
            let geometry = inner.geometry();
            let size_bytes = managed.extent.size_bytes();
            let (path, layout): (Arc<str>, _) = (inner.record.path.as_str().into(), Arc::new(order.layout.clone()));
            for (region, placed) in inner.regions.range(order.first..=order.last) {
                let from = (*region, pairs(&placed.layout));
                let to = (Some(Arc::clone(&layout)), self.class_of(&placed.layout, &layout));
                added.push(Entry::new((order.file, &path), from, to, geometry.used_bytes(*region, size_bytes)));
            }
        }
        self.queue.add(added)
    }

    /// Regions of the order without objects are placed so later.
    fn place_later_by(&self, managed: &Managed, inner: &mut Inner, order: &MoveOrder) -> Result<(), Refusal> {
        let mut placement = inner.placement.clone();
        let mut from = order.first.0;
        let placed: Vec<u32> = inner.regions.range(order.first..=order.last).map(|(region, _)| region.0).collect();
        for end in placed.into_iter().chain([order.last.0 + 1]) {
            if from < end {
                placement =
                    placements::with_layouts(&placement, RegionIndex(from), RegionIndex(end - 1), &order.layout);
            }
            from = end + 1;
        }
        self.placer.put_placement(managed, inner, placement)
    }

    fn check_order(&self, order: &MoveOrder) -> Result<(), Refusal> {
        let invalid = |what| Err(Refusal::Invalid { what });
        if order.first > order.last || order.last.0 >= MAX_REGIONS {
            return invalid(format!(
                "regions {} to {} of file {}: a file has regions 0 to {}",
                order.first,
                order.last,
                order.file,
                MAX_REGIONS - 1
            ));
        }
        let servers = self.context.servers().len();
        match order.layout.stripes().iter().find(|stripe| usize::from(stripe.server.0) >= servers) {
            Some(stripe) => {
                invalid(format!("the layout names server {}, but the cluster has {servers}", stripe.server))
            }
            None => self.drained.check_drained(&order.layout),
        }
    }

    fn class_of(&self, from: &Layout, to: &Layout) -> Class {
        // Share of the cycle on SSD, as a fraction whose sides are compared crosswise.
        let share = |layout: &Layout| {
            let on_ssd = layout.stripes().iter().filter(|stripe| {
                self.context
                    .cluster()
                    .servers
                    .get(usize::from(stripe.server.0))
                    .is_some_and(|s| s.class == ServerClass::Ssd)
            });
            let ssd_bytes: u64 = on_ssd.map(|stripe| u64::from(stripe.size_bytes)).sum();
            (u128::from(ssd_bytes), u128::from(layout.view().cycle_bytes()))
        };
        let ((before, of_before), (after, of_after)) = (share(from), share(to));
        match (after * of_before).cmp(&(before * of_after)) {
            std::cmp::Ordering::Less => Class::Outgoing,
            std::cmp::Ordering::Equal => Class::Neutral,
            std::cmp::Ordering::Greater => Class::Incoming,
        }
    }

    /// A mover's life.
    fn move_on(&self) {
        while !self.queue.is_stopping() {
            self.discards.free_what_is_left().into_iter().for_each(|number| self.queue.freed(number));
            self.replicas.sync_what_is_idle();
            let Some(task) = self.queue.next_task() else { continue };
            // A fault of ours ends the move, which is given up as it unwinds, and not the mover.
            let moved = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.move_region(&task)));
            let outcome =
                moved.unwrap_or_else(|_| Outcome::Failed("a fault in the mover itself; see its last words".to_owned()));
            if let Outcome::Failed(why) = &outcome {
                let what = if task.to.is_some() { "moving" } else { "making the replicas of" };
                note!(self.context.log(), warn, file = %task.file, region = %task.region, error = why, "{what} a region failed");
                if let (None, Some(managed)) = (&task.to, self.files.if_loaded(task.file)) {
                    guard(&managed.inner).lacking.insert(task.region, why.clone());
                }
            }
            self.queue.finish(task.number, outcome);
        }
    }
}
