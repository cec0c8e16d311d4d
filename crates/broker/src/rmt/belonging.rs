//! Whose table it is, and which servers its numbers mean.
//!
//! Servers may be added behind those that the table knows. Those at the end may be taken out of cluster.toml, or others put into their places, once nothing
//! in the table means them: no region, replica, log or object that is still to be removed. Placements of an evacuated server go on without it.

use super::hosts::no_longer_drained;
use super::keys::{describe, file_in};
use super::records::{ClusterRecord, PlacementRecord, Relaid, WantedRecord, encode};
use super::{Changes, RmtError, SCAN, Table, decode};
use minicbor::{Decode, Encode};
use std::collections::BTreeSet;
use stripewise_layout::{Cluster, FileId, Layout, ServerId};

/// Of placements: of files, of managed directories, and of files that plans expect.
const PLACEMENTS: [u8; 3] = *b"pme";
/// Of wanted replicas: of files, and of files that plans expect.
const WANTED: [u8; 2] = *b"wx";

/// What means a server that cluster.toml lists no more.
struct Meant {
    by: String,
    server: ServerId,
}

/// Servers that the table is to forget.
pub(crate) struct Forgetting {
    changes: Changes,
    known: Vec<String>,
    servers: Vec<String>,
    /// So many of them are known as before.
    kept: usize,
}

impl Forgetting {
    /// What forgets the servers from the first on that cluster.toml lists otherwise than the table. Layouts of placements go on without those that are
    /// `drained`.
    ///
    /// # Errors
    ///
    /// [`RmtError::ServerInUse`] where anything else means one of them.
    pub(crate) fn of(table: &Table, cluster: &Cluster, drained: &[String]) -> Result<Self, RmtError> {
        let servers: Vec<String> = cluster.servers.iter().map(|server| server.name.clone()).collect();
        let known = table.get::<ClusterRecord>(b"c")?.map(|known| known.servers).unwrap_or_default();
        let kept = known.iter().zip(&servers).take_while(|(known, listed)| known == listed).count();
        let mut forgetting = Self { changes: Changes::default(), known, servers, kept };
        let gone = |server: ServerId| usize::from(server.0) >= kept;
        if let Some(meant) = first_meant(table, gone)? {
            return Err(forgetting.in_use(&meant));
        }
        let is_drained = |server: &ServerId| drained.contains(&forgetting.name(*server));
        let relaid = |layout: &Layout| -> Relaid<Layout> {
            let absent: BTreeSet<ServerId> =
                layout.stripes().iter().map(|stripe| stripe.server).filter(|server| gone(*server)).collect();
            let Some(first) = absent.first() else { return Ok(None) };
            match absent.iter().find(|server| !is_drained(server)) {
                Some(used) => Err(*used),
                None => cluster.layout_without(layout, &absent).map(Some).ok_or(*first),
            }
        };
        let mut changes = Changes::default();
        let mut meant = None;
        for kind in PLACEMENTS {
            meant = meant.or(relay(table, kind, &mut changes, |record: PlacementRecord| record.relaid(relaid))?);
        }
        for kind in WANTED {
            meant = meant.or(relay(table, kind, &mut changes, |record: WantedRecord| record.relaid(relaid))?);
        }
        if let Some(meant) = meant {
            return Err(forgetting.in_use(&meant));
        }
        for name in forgetting.names() {
            no_longer_drained(&mut changes, name)?;
        }
        let record = ClusterRecord { id: cluster.id.clone(), servers: forgetting.servers.clone() };
        changes.set(b"c".to_vec(), Some(encode(&record)));
        forgetting.changes = changes;
        Ok(forgetting)
    }

    fn names(&self) -> &[String] {
        &self.known[self.kept..]
    }

    fn name(&self, server: ServerId) -> String {
        self.known.get(usize::from(server.0)).cloned().unwrap_or_else(|| server.to_string())
    }

    fn in_use(&self, Meant { by, server }: &Meant) -> RmtError {
        let name = self.name(*server);
        let remedy = format!(
            "with cluster.toml as it was, `stripewise evacuate {name}` empties {name}, and then the last can be taken out"
        );
        self.refusal(format!("{by} names {name}"), remedy)
    }

    /// Why they stay.
    pub(crate) fn refusal(&self, what: String, remedy: String) -> RmtError {
        RmtError::ServerInUse { listed: self.servers.join(", "), known: self.known.join(", "), what, remedy }
    }

    /// Forgets them, durably and in one step, and returns their names.
    pub(crate) fn commit(self, table: &Table) -> Result<Vec<String>, RmtError> {
        table.commit(&self.changes)?;
        Ok(self.names().to_vec())
    }
}

impl Table {
    /// Makes sure that the table is this cluster's; servers may have been added behind those known.
    pub fn belong_to(&self, cluster: &ClusterRecord) -> Result<(), RmtError> {
        let known: Option<ClusterRecord> = self.get(b"c")?;
        if let Some(known) = &known {
            if known.id != cluster.id {
                return Err(RmtError::OtherCluster { found: known.id.clone(), expected: cluster.id.clone() });
            }
            if !cluster.servers.starts_with(&known.servers) {
                return Err(RmtError::Servers { listed: cluster.servers.join(", "), known: known.servers.join(", ") });
            }
        }
        match known.as_ref() == Some(cluster) {
            true => Ok(()),
            false => self.set(b"c".to_vec(), Some(encode(cluster))),
        }
    }
}

/// The first place of bytes, or of what may still be there, on such a server.
fn first_meant(table: &Table, gone: impl Fn(ServerId) -> bool) -> Result<Option<Meant>, RmtError> {
    let on = |layout: &Layout| layout.stripes().iter().map(|stripe| stripe.server).find(|server| gone(*server));
    let mut first: Option<(String, FileId, ServerId)> = None;
    let mut note = |what: String, file, server: Option<ServerId>| {
        if let (None, Some(server)) = (&first, server) {
            first = Some((what, file, server));
        }
    };
    table.every_region(|file, region, record| {
        note(format!("region {region} of"), file, on(&record.layout).or_else(|| on(record.promised())));
    })?;
    for (file, region, _, record) in table.replicas(None)? {
        note(format!("a replica of region {region} of"), file, on(&record.layout));
    }
    for (file, disk, record) in table.logs(None)? {
        let server = [disk, record.on].into_iter().find(|server| gone(*server));
        note("the log of the fragments of".to_owned(), file, server);
    }
    for (file, region, _, layout) in table.discards(None)? {
        note(format!("what is still to be removed of region {region} of"), file, on(&layout));
    }
    let Some((what, file, server)) = first else { return Ok(None) };
    let path = table.file(file)?.map_or_else(|| format!("file {file}"), |record| record.path);
    Ok(Some(Meant { by: format!("{what} {path}"), server }))
}

/// Has the records of a kind mean others. Returns what cannot.
fn relay<R: for<'b> Decode<'b, ()> + Encode<()>>(
    table: &Table,
    kind: u8,
    changes: &mut Changes,
    relaid: impl Fn(R) -> Relaid<R>,
) -> Result<Option<Meant>, RmtError> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let entries = table.store.scan(&[kind], after.as_deref(), SCAN)?;
        for (key, value) in &entries {
            match relaid(decode(key, value)?) {
                Ok(None) => {}
                Ok(Some(record)) => changes.set(key.clone(), Some(encode(&record))),
                Err(server) => return Ok(Some(Meant { by: holder_of(table, key)?, server })),
            }
        }
        match entries.into_iter().next_back() {
            Some((last, _)) => after = Some(last),
            None => return Ok(None),
        }
    }
}

fn holder_of(table: &Table, key: &[u8]) -> Result<String, RmtError> {
    let path = match key.first() {
        Some(b'p' | b'w') => table.file(file_in(key))?.map(|record| record.path),
        _ => None,
    };
    Ok(match (path, key.first()) {
        (Some(path), _) => format!("the placement of {path}"),
        (None, Some(b'm')) => format!("the managed directory {}", describe(key)),
        (None, Some(b'e' | b'x')) => format!("a plan for {}", describe(key)),
        (None, _) => describe(key),
    })
}

#[cfg(test)]
mod tests;
