//! What servers are told of a file's layout, so that it can be put together without the table ([`crate::description`]).
//!
//! A placement is described before the table is committed, and durable with the names of its objects: with the first `fsync`. A move is described, durably, before
//! its commit, on the servers of both places: so whoever has the old objects knows that they are old. What was
//! described and not committed is described again, as it is, before anybody writes there again: by the mover, or when the file is next loaded.

use crate::context::Context;
use crate::description::{Head, Line, Place, Sequence, line};
use crate::drained::Drained;
use crate::guard;
use crate::log::note;
use crate::managed::{Inner, Managed};
use crate::objects::stripe_servers;
use crate::rmt::{Changes, FileRecord, RegionRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use stripewise_layout::{FileId, Layout, ObjectOffset, RegionIndex, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{ObjectName, Operation, Outcome, ServerError};

/// A text longer than this, and than this many times what is live of it, is written again.
const LONG_BYTES: u64 = 64 << 10;
const MAX_DEAD: u64 = 4;
/// About the length of a line.
const LINE_BYTES: u64 = 96;

pub(crate) type Servers = BTreeSet<ServerId>;

pub(crate) fn servers_of<'a>(layouts: impl IntoIterator<Item = &'a Layout>) -> Servers {
    layouts.into_iter().flat_map(|layout| layout.stripes().iter().map(|stripe| stripe.server)).collect()
}

/// A server, and whether it took what was appended.
type Appended = (ServerId, Result<(), Refusal>);

/// What servers are told, and in which order.
pub(crate) struct Describing {
    context: Arc<Context>,
    drained: Arc<Drained>,
    /// The last line told to servers.
    described: Mutex<Sequence>,
}

impl Describing {
    pub(crate) fn new(context: &Arc<Context>, drained: &Arc<Drained>) -> Self {
        Self { context: Arc::clone(context), drained: Arc::clone(drained), described: Mutex::default() }
    }

    fn sequence(&self) -> Result<Sequence, Refusal> {
        let mut last = guard(&self.described);
        if last.broker == 0 {
            // Also after an older table was put back: time has gone on.
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
            last.broker = self.context.table().advance(now.max(1) as u64)?;
        }
        last.step += 1;
        Ok(*last)
    }

    pub(crate) fn head(&self, file: FileId, record: &FileRecord) -> Result<String, Refusal> {
        let FileRecord { region_bytes, mode, uid, gid, .. } = *record;
        let (cluster, path) = (self.context.cluster().id.clone(), record.path.clone());
        Ok(line(self.sequence()?, &Line::File(Head { file, cluster, region_bytes, mode, uid, gid, path })))
    }

    fn place_line(&self, region: RegionIndex, record: &RegionRecord, size_bytes: u64) -> Line {
        let name = |server: ServerId| self.context.cluster().servers[usize::from(server.0)].name.clone();
        let stripes = record.layout.stripes().iter().map(|stripe| (name(stripe.server), stripe.size_bytes));
        Line::Place { region, place: Place { generation: record.generation, stripes: stripes.collect() }, size_bytes }
    }

    fn text(&self, lines: &[Line]) -> Result<String, Refusal> {
        lines.iter().map(|of| Ok(line(self.sequence()?, of))).collect()
    }

    /// Appends to the descriptions on these servers, all of them together. One result for each.
    fn append<'a>(
        &self,
        managed: &Managed,
        inner: &Inner,
        lines: impl IntoIterator<Item = (ServerId, &'a [Line])>,
    ) -> Result<Vec<Appended>, Refusal> {
        let file = managed.file;
        let (mut servers, mut calls) = (Vec::new(), Vec::new());
        for (server, lines) in lines {
            let (head, text) = (self.head(file, &inner.record)?, self.text(lines)?);
            servers.push((server, lines));
            calls.push((server, Operation::Describe { file, head: head.into(), lines: text.into() }));
        }
        managed.reach(servers.iter().map(|(server, _)| *server));
        let live = LINE_BYTES * (1 + inner.regions.len() as u64);
        let result = |((server, lines), outcome): ((ServerId, &[Line]), Result<Outcome, ServerError>)| {
            let length = outcome.and_then(|outcome| outcome.into_bytes(&self.context.server_name(server)));
            let result = match length {
                Ok(length) if length > LONG_BYTES && length > MAX_DEAD * live => {
                    self.describe_again(managed, inner, server, lines)
                }
                length => length.map(drop).map_err(Refusal::from),
            };
            (server, result)
        };
        Ok(servers.into_iter().zip(self.context.perform_together(calls)).map(result).collect())
    }

    /// All that there is to say of the file, in place of what one server holds. `lines` say what is about to change: they come last, with later
    /// sequences than what is so far.
    fn describe_again(
        &self,
        managed: &Managed,
        inner: &Inner,
        server: ServerId,
        lines: &[Line],
    ) -> Result<(), Refusal> {
        let mut text = self.head(managed.file, &inner.record)?;
        let size_bytes = managed.extent.size_bytes();
        for (region, record) in &inner.regions {
            text += &line(self.sequence()?, &self.place_line(*region, record, size_bytes));
        }
        text += &line(self.sequence()?, &Line::Size { size_bytes, is_exact: inner.record.has_leftovers });
        text += &self.text(lines)?;
        managed.reach([server]);
        Ok(self.context.server(server)?.describe_again(managed.file, &text)?)
    }

    /// The call that describes a new region to its one server: for who makes the region's object by the same call.
    pub(crate) fn begin_description(
        &self,
        managed: &Managed,
        inner: &Inner,
        region: RegionIndex,
        record: &RegionRecord,
    ) -> Result<Operation<'static>, Refusal> {
        let lines = [self.place_line(region, record, managed.extent.size_bytes())];
        let (head, text) = (self.head(managed.file, &inner.record)?, self.text(&lines)?);
        Ok(Operation::Describe { file: managed.file, head: head.into(), lines: text.into() })
    }

    /// New regions, each on the servers that hold it. Durable with the names of their objects.
    pub(crate) fn describe_placed(
        &self,
        managed: &Managed,
        inner: &Inner,
        placed: &[(RegionIndex, RegionRecord)],
    ) -> Result<(), Refusal> {
        let size_bytes = managed.extent.size_bytes();
        let mut lines = BTreeMap::<ServerId, Vec<Line>>::new();
        for (region, record) in placed {
            for server in servers_of([&record.layout]) {
                lines.entry(server).or_default().push(self.place_line(*region, record, size_bytes));
            }
        }
        let lines = lines.iter().map(|(server, lines)| (*server, lines.as_slice()));
        self.append(managed, inner, lines)?.into_iter().try_for_each(|(_, result)| result)
    }

    /// Where the region lies from now on, durably, on the servers of its place and, where they can be reached, on those `also` names.
    pub(crate) fn describe_instead(
        &self,
        managed: &Managed,
        inner: &Inner,
        (region, record): (RegionIndex, &RegionRecord),
        also: &Servers,
    ) -> Result<(), Refusal> {
        let place = self.place_line(region, record, managed.extent.size_bytes());
        let own = servers_of([&record.layout]);
        for (server, result) in self.append_durably(managed, inner, own.union(also), &place)? {
            match result {
                Err(refusal) if own.contains(&server) => return Err(refusal),
                Err(refusal) => {
                    note!(self.context.log(), warn, path = %inner.record.path, %server, error = %refusal, "a move is not described on a server")
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn append_durably<'s>(
        &self,
        managed: &Managed,
        inner: &Inner,
        servers: impl IntoIterator<Item = &'s ServerId>,
        line: &Line,
    ) -> Result<Vec<Appended>, Refusal> {
        let lines = std::slice::from_ref(line);
        let mut results = self.append(managed, inner, servers.into_iter().map(|server| (*server, lines)))?;
        let appended = || results.iter().filter(|(_, result)| result.is_ok()).map(|(server, _)| *server);
        let sync = |server| (server, Operation::SyncDescription(managed.file));
        let synced = self.context.perform_together(appended().map(sync));
        for ((_, result), outcome) in results.iter_mut().filter(|(_, result)| result.is_ok()).zip(synced) {
            *result = outcome.map(drop).map_err(Refusal::from);
        }
        Ok(results)
    }

    /// That the file is cut, durably, before anything of it goes. A server that cannot be told is noted: what it holds is then told by others, or missed.
    pub(crate) fn describe_truncation(&self, managed: &Managed, inner: &Inner, size_bytes: u64) -> Result<(), Refusal> {
        let truncated = Line::Truncated { size_bytes };
        for (server, result) in self.append_durably(managed, inner, &self.describing(inner), &truncated)? {
            if let Err(refusal) = result {
                note!(self.context.log(), warn, path = %inner.record.path, %server, error = %refusal, "a truncation is not described on a server");
            }
        }
        Ok(())
    }

    /// The file's size, durable with the next `fsync`.
    pub(crate) fn describe_size(&self, managed: &Managed, inner: &mut Inner, size_bytes: u64, is_exact: bool) {
        managed.control.notices().set_unsynced_descriptions(true);
        let servers = self.describing(inner);
        let lines = [Line::Size { size_bytes, is_exact }];
        let appended = self.append(managed, inner, servers.into_iter().map(|server| (server, &lines[..])));

        match appended {
            Ok(results) => {
                let mut described = Vec::new();
                for (server, result) in results {
                    match result {
                        Ok(()) => described.push(server),
                        Err(refusal) => {
                            note!(self.context.log(), warn, path = %inner.record.path, %server, error = %refusal, "a size is not described on a server")
                        }
                    }
                }
                inner.unsynced.extend(described);
            }
            Err(refusal) => {
                note!(self.context.log(), warn, path = %inner.record.path, error = %refusal, "a size is not described")
            }
        }
    }

    /// The durable size: told to the servers where what they hold does not show it.
    pub(crate) fn describe_size_if_hidden(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        size_bytes: u64,
    ) -> Result<(), Refusal> {
        let is_exact = inner.record.has_leftovers;
        if !is_exact && self.held_bytes(managed.file, inner) == size_bytes {
            return Ok(());
        }
        let notices = managed.control.notices();
        let before = (inner.unsynced.clone(), notices.has_unsynced_descriptions());
        self.describe_size(managed, inner, size_bytes, is_exact);
        let unsynced = self.describing(inner).into_iter().filter(|server| inner.unsynced.contains(server));
        let sync = |server| (server, Operation::SyncDescription(managed.file));
        self.context.perform_together(unsynced.map(sync)).into_iter().try_for_each(|outcome| outcome.map(drop))?;
        let are_unsynced;
        (inner.unsynced, are_unsynced) = before;
        notices.set_unsynced_descriptions(are_unsynced);
        Ok(())
    }

    /// Servers that hold anything of the file, or will hold its first region.
    fn describing(&self, inner: &Inner) -> Servers {
        let mut servers = servers_of(inner.layouts());
        if servers.is_empty() {
            servers = servers_of([&self.drained.avoiding(inner.placement.layout_of(RegionIndex(0)))]);
        }
        servers
    }

    /// The end of what the objects of the file's last regions hold.
    pub(crate) fn held_bytes(&self, file: FileId, inner: &Inner) -> u64 {
        let of_region = |(region, record): (&RegionIndex, &RegionRecord)| {
            let object = ObjectName { file, region: *region, generation: record.generation };
            let view = record.layout.view();
            let sizes = stripe_servers(&record.layout).map(|server| (server, Operation::Size(object)));
            let sizes = self.context.perform_together(sizes);
            let ends = sizes.into_iter().enumerate().filter_map(|(turn, outcome)| {
                let last = outcome.ok()?.into_size("").ok()?.end_bytes.checked_sub(1)?;
                Some(inner.geometry().start_of(*region).0 + view.region_offset(turn, ObjectOffset(last)).0 + 1)
            });
            ends.max()
        };
        inner.regions.iter().rev().find_map(of_region).unwrap_or(0)
    }

    /// Of a file that is loaded: describes it if no broker has, and again what a predecessor may have described and not committed.
    pub(crate) fn describe_loaded(&self, managed: &Managed, inner: &mut Inner) -> Result<(), Refusal> {
        if !inner.record.is_described {
            for server in servers_of(inner.layouts()) {
                // A server that is away: at the next load.
                if let Err(refusal) = self.describe_again(managed, inner, server, &[]) {
                    note!(self.context.log(), warn, path = %inner.record.path, %server, error = %refusal, "a file is not described yet");
                    return Ok(());
                }
            }
            let record = FileRecord { is_described: true, ..inner.record.clone() };
            let mut changes = Changes::default();
            changes.put_file(managed.file, &record);
            self.context.table().commit(&changes)?;
            inner.record = record;
        }
        for region in inner.discards.keys().map(|(region, _)| *region).collect::<BTreeSet<_>>() {
            let Some(record) = inner.regions.get(&region) else { continue };
            let discarded = inner.discards.iter().filter(|((of, _), _)| *of == region).map(|(_, layout)| layout);
            // One that is away has no claim that anybody could follow: its objects are missing.
            if let Err(refusal) = self.describe_instead(managed, inner, (region, record), &servers_of(discarded)) {
                note!(self.context.log(), warn, path = %inner.record.path, %region, error = %refusal, "a region is not described again");
            }
        }
        Ok(())
    }
}
