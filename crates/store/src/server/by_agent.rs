//! Servers whose I/O runs in the agent of the host (the broker): what a client process sees of them.
//!
//! Data goes through the process's lane ([`AgentLane`]), in pieces of at most [`SLOT_BYTES`], several under way together; one wake-up tells the agent of
//! all pieces that a request begins at once. Only transfers, sizes and syncs are asked this way. Whatever else a server does is asked of it by the broker.

use super::calls::perform_in_turn;
use super::{
    Call, Capabilities, Handle, ObjectHandle, ObjectName, ObjectSize, ObjectStore, OpenMode, Ownership, ServerError,
    Standing, Syncing, Transfer,
};
use crate::shared::agent_lane::{AgentLane, Ask, EARLY_SLOTS, Failure, Order, SLOT_BYTES, SLOTS};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stripewise_layout::{Direction, FileId, ServerId};

/// How often the agent is looked after while it is waited for.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Of every object, as long as one host uses a cluster.
const EPOCH: u64 = 1;

/// The way to the agent.
pub trait AgentLink: Send + Sync {
    /// The lane of this process, which the agent knows. Asked for inside files' lanes, as is [`Self::is_agent_alive`]: who truncates one of these files waits for
    /// the asker, so neither waits for what that one holds.
    ///
    /// # Errors
    /// Why there is none, in words.
    fn lane(&self) -> Result<&'static AgentLane, String>;

    /// Looks whether the agent is there, and hands the lane to a successor if there is one. `false`: there is no agent now.
    fn is_agent_alive(&self) -> bool;

    /// For how long a successor is waited for.
    fn patience(&self) -> Duration;
}

/// See the module.
pub struct AgentServer {
    name: String,
    number: ServerId,
    capabilities: Capabilities,
    link: Arc<dyn AgentLink>,
}

/// A piece of a transfer in a slot.
struct Piece {
    slot: usize,
    transfer: usize,
    /// First byte in the transfer.
    start: usize,
    length: usize,
}

/// What was moved of a transfer.
#[derive(Clone, Default)]
struct Progress {
    /// Bytes that pieces were made of.
    begun: usize,
    /// Bytes of all pieces up to the first that was short.
    moved: usize,
    /// A piece was short or failed: what lies behind it does not count.
    is_short: bool,
    failure: Option<Failure>,
}

impl AgentServer {
    /// Server `number` of the cluster, called `name`, of a kind that can do this.
    pub fn new(name: &str, number: ServerId, capabilities: Capabilities, link: Arc<dyn AgentLink>) -> Self {
        Self { name: name.to_owned(), number, capabilities, link }
    }

    fn unusable(&self, what: impl Into<String>) -> ServerError {
        ServerError::Unusable { server: self.name.clone(), what: what.into() }
    }

    fn broker_only(&self) -> ServerError {
        self.unusable("its I/O runs in the broker, which alone does this")
    }

    fn fault(&self, object: ObjectName, failure: Failure) -> ServerError {
        let server = self.name.clone();
        match failure {
            Failure::Missing => ServerError::Missing { server, object },
            Failure::NoSpace => ServerError::NoSpace { server },
            Failure::Denied => ServerError::Denied { server },
            Failure::Other(what) => ServerError::Unusable { server, what },
        }
    }

    fn order(&self, ask: Ask, object: ObjectName, offset: u64, length: usize) -> Order {
        let ObjectName { file, region, generation } = object;
        Order { ask, server: self.number, file, region, generation, epoch: EPOCH, offset, length }
    }

    /// Waits until the operation of a slot is over, however long its server takes. `None`: the agent is gone, for longer than patience lasts, and the slot is
    /// not this thread's any more.
    fn wait_for(&self, lane: &AgentLane, slot: usize) -> Option<Result<u64, Failure>> {
        let mut gone_since: Option<Instant> = None;
        loop {
            if let Some(result) = lane.wait(slot, CHECK_INTERVAL) {
                return Some(result);
            }
            if self.link.is_agent_alive() {
                gone_since = None;
                continue;
            }
            let since = *gone_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= self.link.patience() && lane.abandon(slot) {
                return None;
            }
        }
    }

    fn no_agent(&self) -> Failure {
        let waited_s = self.link.patience().as_secs();
        Failure::Other(format!("no broker took the place of the last one within {waited_s} s; start one and repeat"))
    }

    /// A slot that may be waited for, because this thread holds none that others need.
    fn claim(lane: &AgentLane) -> usize {
        loop {
            let seen = lane.freed();
            if let Some(slot) = lane.claim(0..SLOTS) {
                return slot;
            }
            lane.wait_for_slot(seen, CHECK_INTERVAL);
        }
    }

    /// Asks for what moves no data. Returns what the agent answered: a size, or nothing of note.
    fn ask(&self, ask: Ask, object: ObjectName) -> Result<u64, ServerError> {
        let lane = self.link.lane().map_err(|what| self.unusable(what))?;
        let slot = Self::claim(lane);
        lane.submit(slot, &self.order(ask, object, 0, 0));
        lane.wake_agent();
        let result = match self.wait_for(lane, slot) {
            Some(result) => {
                lane.free(slot);
                result
            }
            None => Err(self.no_agent()),
        };
        result.map_err(|failure| self.fault(object, failure))
    }

    /// Begins the next piece of a transfer in a slot.
    fn begin(
        &self,
        lane: &AgentLane,
        slot: usize,
        (number, transfer): (usize, &Transfer<'_>),
        progress: &mut Progress,
    ) -> Option<Piece> {
        let Handle::Named(object) = transfer.handle else { return None };
        let (start, length) = (progress.begun, (transfer.memory.bytes() - progress.begun).min(SLOT_BYTES));
        let memory = match lane.memory(slot, length) {
            Ok(memory) => memory,
            Err(errno) => {
                lane.free(slot);
                progress.is_short = true;
                progress.failure.get_or_insert(Failure::Other(format!("no memory for its data: {errno}")));
                return None;
            }
        };
        let direction = transfer.memory.direction();
        if direction == Direction::Write {
            copy_out(transfer, start, memory, length);
        }
        let ask = if direction == Direction::Write { Ask::Write } else { Ask::Read };
        lane.submit(slot, &self.order(ask, object, transfer.offset.0 + start as u64, length));
        progress.begun += length;
        Some(Piece { slot, transfer: number, start, length })
    }

    /// Takes what came of a piece.
    fn end(&self, lane: &AgentLane, piece: &Piece, transfer: &mut Transfer<'_>, progress: &mut Progress) {
        let Some(result) = self.wait_for(lane, piece.slot) else {
            progress.is_short = true;
            progress.failure.get_or_insert_with(|| self.no_agent());
            return;
        };
        match result {
            Ok(count) => {
                let count = (count as usize).min(piece.length);
                if transfer.memory.direction() == Direction::Read
                    && let Ok(memory) = lane.memory(piece.slot, count)
                {
                    copy_in(transfer, piece.start, memory, count);
                }
                if !progress.is_short {
                    progress.moved += count;
                    progress.is_short = count < piece.length;
                }
            }
            Err(failure) => {
                if !progress.is_short {
                    progress.failure = Some(failure);
                }
                progress.is_short = true;
            }
        }
        lane.free(piece.slot);
    }

    fn submit_on(&self, lane: &AgentLane, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        let mut progress = vec![Progress::default(); batch.len()];
        let mut under_way: VecDeque<Piece> = VecDeque::new();
        let mut next = 0;
        // What finds a slot begins before others do.
        while next < batch.len() {
            let (transfer, made) = (&batch[next], &mut progress[next]);
            if made.begun >= transfer.memory.bytes() || made.is_short || transfer.handle.descriptor().is_some() {
                next += 1;
                continue;
            }
            let Some(slot) = lane.claim(0..EARLY_SLOTS) else { break };
            under_way.extend(self.begin(lane, slot, (next, transfer), made));
        }
        if !under_way.is_empty() {
            lane.wake_agent();
        }
        others();
        // The rest as slots get free: this thread's own ones first.
        loop {
            while next < batch.len() {
                let (transfer, made) = (&batch[next], &mut progress[next]);
                if made.begun >= transfer.memory.bytes() || made.is_short || transfer.handle.descriptor().is_some() {
                    next += 1;
                    continue;
                }
                let slot = match lane.claim(0..SLOTS) {
                    Some(slot) => slot,
                    None if under_way.is_empty() => Self::claim(lane),
                    None => break,
                };
                under_way.extend(self.begin(lane, slot, (next, transfer), made));
                lane.wake_agent();
            }
            let Some(piece) = under_way.pop_front() else { break };
            self.end(lane, &piece, &mut batch[piece.transfer], &mut progress[piece.transfer]);
        }
        for (transfer, made) in batch.iter_mut().zip(progress) {
            let Handle::Named(object) = transfer.handle else { continue };
            transfer.completion = Some(match made.failure {
                Some(failure) if made.moved == 0 => Err(self.fault(object, failure)),
                _ => Ok(made.moved),
            });
        }
        self.sync_durable_writes(batch);
    }

    /// Makes durable what was to be written so, each object once.
    fn sync_durable_writes(&self, batch: &mut [Transfer<'_>]) {
        let is_meant = |transfer: &Transfer<'_>| {
            let is_write = transfer.memory.direction() == Direction::Write;
            is_write && transfer.how.durable && matches!(transfer.completion, Some(Ok(_)))
        };
        let mut synced: Vec<(ObjectName, bool)> = Vec::new();
        for transfer in batch.iter_mut().filter(|transfer| is_meant(transfer)) {
            let Handle::Named(object) = transfer.handle else { continue };
            if synced.iter().any(|(other, is_durable)| *other == object && *is_durable) {
                continue;
            }
            let result = self.sync(transfer.handle);
            synced.push((object, result.is_ok()));
            if let Err(error) = result {
                transfer.completion = Some(Err(error));
            }
        }
    }
}

/// Runs `each` over the pieces of memory that hold `length` bytes of a transfer from `start` on, with how far each lies behind `start`.
fn over_pieces(transfer: &Transfer<'_>, start: usize, length: usize, mut each: impl FnMut(*mut u8, usize, usize)) {
    let (mut skip, mut at) = (start, 0);
    for piece in transfer.memory.pieces() {
        let before = skip.min(piece.iov_len);
        skip -= before;
        let count = (piece.iov_len - before).min(length - at);
        if count > 0 {
            each(piece.iov_base.cast::<u8>().wrapping_add(before), at, count);
            at += count;
        }
        if at == length {
            break;
        }
    }
}

fn copy_out(transfer: &Transfer<'_>, start: usize, memory: *mut u8, length: usize) {
    over_pieces(transfer, start, length, |from, at, count| {
        // SAFETY: memory lent for reading, and a slot's that this thread holds and that is as long.
        unsafe { std::ptr::copy_nonoverlapping(from, memory.add(at), count) };
    });
}

fn copy_in(transfer: &Transfer<'_>, start: usize, memory: *mut u8, length: usize) {
    over_pieces(transfer, start, length, |to, at, count| {
        // SAFETY: memory lent for writing, and a slot's that this thread holds and whose operation is over.
        unsafe { std::ptr::copy_nonoverlapping(memory.add(at), to, count) };
    });
}

impl ObjectStore for AgentServer {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn submit(&self, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        match self.link.lane() {
            Ok(lane) => self.submit_on(lane, batch, others),
            Err(what) => {
                for transfer in batch {
                    transfer.completion = Some(Err(self.unusable(what.clone())));
                }
                others();
            }
        }
    }

    fn perform_batch(&self, batch: &mut [Call<'_>], others: &mut dyn FnMut()) {
        perform_in_turn(self, batch, others);
    }

    fn probe(&self) -> Result<(), ServerError> {
        Err(self.broker_only())
    }

    fn standing(&self) -> Result<Standing, ServerError> {
        Err(self.broker_only())
    }

    fn create_expecting(&self, _: ObjectName, _: Ownership, _: u64) -> Result<(), ServerError> {
        Err(self.broker_only())
    }

    fn open_as(&self, object: ObjectName, _: OpenMode) -> Result<ObjectHandle, ServerError> {
        self.ask(Ask::Size, object)?;
        Ok(ObjectHandle::Named(object))
    }

    fn size(&self, object: ObjectName) -> Result<ObjectSize, ServerError> {
        let bytes = self.ask(Ask::Size, object)?;
        Ok(ObjectSize { end_bytes: bytes, occupied_bytes: bytes })
    }

    fn truncate(&self, _: ObjectName, _: u64) -> Result<(), ServerError> {
        Err(self.broker_only())
    }

    fn sync(&self, handle: Handle<'_>) -> Result<(), ServerError> {
        match handle {
            // What was acknowledged is durable.
            Handle::Named(_) if self.capabilities.syncing == Syncing::Nothing => Ok(()),
            Handle::Named(object) => self.ask(Ask::Sync, object).map(drop),
            Handle::Descriptor(_) => Err(self.unusable("its objects have no descriptors")),
        }
    }

    fn sync_names(&self, _: FileId) -> Result<(), ServerError> {
        Ok(())
    }

    fn set_ownership(&self, _: ObjectName, _: Ownership) -> Result<(), ServerError> {
        Err(self.broker_only())
    }

    fn remove(&self, _: ObjectName) -> Result<(), ServerError> {
        Err(self.broker_only())
    }

    fn remove_file(&self, _: FileId) -> Result<(), ServerError> {
        Err(self.broker_only())
    }

    fn describe(&self, _: FileId, _: &str, _: &str) -> Result<u64, ServerError> {
        Err(self.broker_only())
    }

    fn describe_again(&self, _: FileId, _: &str) -> Result<(), ServerError> {
        Err(self.broker_only())
    }

    fn sync_description(&self, _: FileId) -> Result<(), ServerError> {
        Err(self.broker_only())
    }

    fn descriptions(&self) -> Result<Vec<(FileId, String)>, ServerError> {
        Err(self.broker_only())
    }

    fn objects(&self) -> Result<Vec<ObjectName>, ServerError> {
        Err(self.broker_only())
    }

    fn free_bytes(&self) -> Result<u64, ServerError> {
        Err(self.broker_only())
    }
}
