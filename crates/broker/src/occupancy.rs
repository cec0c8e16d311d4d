//! What objects occupy on the servers, which is less than what is promised to their regions.

use crate::context::Context;
use crate::files::Files;
use crate::guard;
use crate::managed::Managed;
use crate::objects::stripe_servers;
use std::sync::Arc;
use stripewise_layout::{FileId, Generation, Layout, RegionIndex, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{ObjectName, Operation, ServerError};

/// Objects that are asked for their sizes at once.
const CALLS_AT_ONCE: usize = 1024;
/// Files that are looked at for one request.
const FILES_AT_ONCE: usize = 4096;

type Object = (ServerId, ObjectName);

/// Asks servers for the sizes of objects.
pub(crate) struct Occupancy {
    context: Arc<Context>,
    files: Arc<Files>,
}

impl Occupancy {
    pub(crate) fn new(context: &Arc<Context>, files: &Arc<Files>) -> Self {
        Self { context: Arc::clone(context), files: Arc::clone(files) }
    }

    /// What the objects of a file's places and replicas occupy on each server, in cluster order; `None` of a server that cannot be asked. An object that
    /// is not there occupies nothing.
    pub(crate) fn of_file(&self, managed: &Managed) -> Vec<Option<u64>> {
        let mut sums = self.none();
        self.add(&mut sums, &objects_of_loaded(managed));
        sums
    }

    /// The same of the next files behind `after` together, and the last of these if there may be more. Loads none: files that nobody uses are many.
    pub(crate) fn of_files(&self, after: Option<FileId>) -> Result<(Vec<Option<u64>>, Option<FileId>), Refusal> {
        let files = self.context.table().files(after, FILES_AT_ONCE)?;
        let (mut sums, mut objects) = (self.none(), Vec::new());
        for (file, _) in &files {
            match self.files.if_loaded(*file) {
                Some(managed) => objects.extend(objects_of_loaded(&managed)),
                None => objects.extend(self.objects_of_unloaded(*file)?),
            }
            if objects.len() >= CALLS_AT_ONCE {
                self.add(&mut sums, &objects);
                objects.clear();
            }
        }
        self.add(&mut sums, &objects);
        let last = files.last().filter(|_| files.len() == FILES_AT_ONCE).map(|(file, _)| *file);
        Ok((sums, last))
    }

    fn none(&self) -> Vec<Option<u64>> {
        vec![Some(0); self.context.servers().len()]
    }

    fn objects_of_unloaded(&self, file: FileId) -> Result<Vec<Object>, Refusal> {
        let (regions, replicas) = (self.context.table().regions(file)?, self.context.table().replicas(Some(file))?);
        let places = regions.iter().map(|(region, placed)| (*region, placed.generation, &placed.layout));
        let replicas = replicas.iter().map(|(_, region, _, replica)| (*region, replica.generation, &replica.layout));
        Ok(objects_of(file, places.chain(replicas)))
    }

    fn add(&self, sums: &mut [Option<u64>], objects: &[Object]) {
        // A part at a time: the calls of a file of a million regions must not all be in memory.
        for part in objects.chunks(CALLS_AT_ONCE) {
            let sizes = part.iter().map(|(server, object)| (*server, Operation::Size(*object)));
            for ((server, _), size) in part.iter().zip(self.context.perform_together(sizes)) {
                let Some(sum) = sums.get_mut(usize::from(server.0)) else { continue };
                let bytes = match size.and_then(|size| size.into_size("")) {
                    Ok(size) => Some(size.occupied_bytes),
                    Err(ServerError::Missing { .. }) => Some(0),
                    Err(_) => None,
                };
                *sum = sum.zip(bytes).map(|(sum, bytes)| sum + bytes);
            }
        }
    }
}

fn objects_of<'a>(file: FileId, places: impl Iterator<Item = (RegionIndex, Generation, &'a Layout)>) -> Vec<Object> {
    let objects = places.flat_map(|(region, generation, layout)| {
        let object = ObjectName { file, region, generation };
        stripe_servers(layout).map(move |server| (server, object))
    });
    objects.collect()
}

fn objects_of_loaded(managed: &Managed) -> Vec<Object> {
    let inner = guard(&managed.inner);
    let places = inner.regions.iter().map(|(region, placed)| (*region, placed.generation, &placed.layout));
    let replicas = inner.replicas.iter().flat_map(|(region, of_region)| {
        of_region.values().map(|replica| (*region, replica.generation, &replica.layout))
    });
    objects_of(managed.file, places.chain(replicas))
}
