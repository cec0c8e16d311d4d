//! What servers are told of a file's layout, so that it can be put together without the table ([`crate::description`]).
//!
//! A placement is described before the table is committed, and durable with the names of its objects: with the first `fsync`. A move is described, durably, before
//! its commit, on the servers of both places: so whoever has the old objects knows that they are old. What was
//! described and not committed is described again, as it is, before anybody writes there again: by the mover, or when the file is next loaded.

use crate::context::Context;
use crate::description::{Head, Line, Place, Sequence, line};
use crate::drained::Drained;
use crate::guard;
use crate::managed::{Inner, Managed};
use crate::rmt::{Changes, FileRecord, RegionRecord};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use stripewise_layout::{FileId, Layout, ObjectOffset, RegionIndex, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::ObjectName;

/// A text longer than this, and than this many times what is live of it, is written again.
const LONG_BYTES: u64 = 64 << 10;
const MAX_DEAD: u64 = 4;
/// About the length of a line.
const LINE_BYTES: u64 = 96;

pub(crate) type Servers = BTreeSet<ServerId>;

pub(crate) fn servers_of<'a>(layouts: impl IntoIterator<Item = &'a Layout>) -> Servers {
    layouts.into_iter().flat_map(|layout| layout.stripes().iter().map(|stripe| stripe.server)).collect()
}

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

    /// Appends to the description on one server.
    fn append(&self, managed: &Managed, inner: &Inner, server: ServerId, lines: &str) -> Result<(), Refusal> {
        let head = self.head(managed.file, &inner.record)?;
        let length = self.context.server(server)?.describe(managed.file, &head, lines)?;
        let live = LINE_BYTES * (1 + inner.regions.len() as u64);
        if length > LONG_BYTES && length > MAX_DEAD * live {
            self.describe_again(managed, inner, server)?;
        }
        Ok(())
    }

    /// All that there is to say of the file, in place of what one server holds.
    fn describe_again(&self, managed: &Managed, inner: &Inner, server: ServerId) -> Result<(), Refusal> {
        let mut text = self.head(managed.file, &inner.record)?;
        let size_bytes = managed.extent.size_bytes();
        for (region, record) in &inner.regions {
            text += &line(self.sequence()?, &self.place_line(*region, record, size_bytes));
        }
        text += &line(self.sequence()?, &Line::Size { size_bytes, is_exact: inner.record.has_leftovers });
        Ok(self.context.server(server)?.describe_again(managed.file, &text)?)
    }

    /// New regions, each on the servers that hold it. Durable with the names of their objects.
    pub(crate) fn describe_placed(
        &self,
        managed: &Managed,
        inner: &Inner,
        placed: &[(RegionIndex, RegionRecord)],
    ) -> Result<(), Refusal> {
        let size_bytes = managed.extent.size_bytes();
        let mut texts = std::collections::BTreeMap::<ServerId, String>::new();
        for (region, record) in placed {
            let text = line(self.sequence()?, &self.place_line(*region, record, size_bytes));
            for server in servers_of([&record.layout]) {
                *texts.entry(server).or_default() += &text;
            }
        }
        texts.iter().try_for_each(|(server, text)| self.append(managed, inner, *server, text))
    }

    /// Where the region lies from now on, durably, on the servers of its place and, where they can be reached, on those `also` names.
    pub(crate) fn describe_instead(
        &self,
        managed: &Managed,
        inner: &Inner,
        (region, record): (RegionIndex, &RegionRecord),
        also: &Servers,
    ) -> Result<(), Refusal> {
        let text = line(self.sequence()?, &self.place_line(region, record, managed.extent.size_bytes()));
        let own = servers_of([&record.layout]);
        for server in own.union(also) {
            if let Err(refusal) = self.append_durably(managed, inner, *server, &text) {
                if own.contains(server) {
                    return Err(refusal);
                }
                self.context.note(&format!("{}: not described: {refusal}", inner.record.path));
            }
        }
        Ok(())
    }

    fn append_durably(&self, managed: &Managed, inner: &Inner, server: ServerId, text: &str) -> Result<(), Refusal> {
        self.append(managed, inner, server, text)?;
        Ok(self.context.server(server)?.sync_description(managed.file)?)
    }

    /// That the file is cut, durably, before anything of it goes. A server that cannot be told is noted: what it holds is then told by others, or missed.
    pub(crate) fn describe_truncation(&self, managed: &Managed, inner: &Inner, size_bytes: u64) -> Result<(), Refusal> {
        let text = line(self.sequence()?, &Line::Truncated { size_bytes });
        for server in self.describing(inner) {
            if let Err(refusal) = self.append_durably(managed, inner, server, &text) {
                self.context.note(&format!("{}: its truncation is not described: {refusal}", inner.record.path));
            }
        }
        Ok(())
    }

    /// The file's size, durable with the next `fsync`.
    pub(crate) fn describe_size(&self, managed: &Managed, inner: &mut Inner, size_bytes: u64, is_exact: bool) {
        let described = self.sequence().map(|sequence| line(sequence, &Line::Size { size_bytes, is_exact }));
        for server in self.describing(inner) {
            let told =
                described.as_ref().map_err(Clone::clone).and_then(|text| self.append(managed, inner, server, text));
            match told {
                Ok(()) => drop(inner.unsynced.insert(server)),
                Err(refusal) => {
                    self.context.note(&format!("{}: its size is not described: {refusal}", inner.record.path))
                }
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
        self.describe_size(managed, inner, size_bytes, is_exact);
        for server in self.describing(inner) {
            if inner.unsynced.contains(&server) {
                self.context.server(server)?.sync_description(managed.file)?;
            }
        }
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
            let ends = record.layout.stripes().iter().enumerate().filter_map(|(turn, stripe)| {
                let end = self.context.server(stripe.server).ok()?.size(object).ok()?.end_bytes;
                let last = end.checked_sub(1)?;
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
                if let Err(refusal) = self.describe_again(managed, inner, server) {
                    self.context.note(&format!("{}: not described yet: {refusal}", inner.record.path));
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
                self.context.note(&format!("{}: region {region} is not described again: {refusal}", inner.record.path));
            }
        }
        Ok(())
    }
}
