//! What the exported files' accesses are predicted to take: as planned, as exported and by default.

use super::exported::{ExportError, ExportRequest, ExportedFile, Loss};
use super::fit::renumbered;
use super::layout::NativeLayout;
use super::lookup;
use crate::plan::Gain;
use crate::predict::{PredictionSum, Throughput};
use crate::request::{PlanOptions, PlanRequest};
use crate::sources::{PlanKey, Sources};
use stripewise_layout::Placement;
use stripewise_model::{Concurrency, Profile};
use stripewise_trace::FileAccess;

/// Drawings of where a file system that chooses targets itself may put a file.
const DRAWINGS: u64 = 8;

/// The mean time of drawings of the same requests; its spread has their own.
fn mean(drawings: Vec<Throughput>) -> Throughput {
    let over = |of: &dyn Fn(&Throughput) -> f64| drawings.iter().map(of).sum::<f64>() / drawings.len() as f64;
    let time_s = over(&|one| one.time_s);
    if drawings.len() == 1 || time_s <= 0.0 {
        return drawings[0];
    }
    let apart = over(&|one| (one.time_s / time_s - 1.0).powi(2)).sqrt();
    Throughput {
        time_s,
        mb_per_s: drawings[0].bytes as f64 / time_s / 1e6,
        spread: over(&|one| one.spread).hypot(apart),
        ..drawings[0]
    }
}

/// What predictions need: the accesses as a request has them.
pub(super) struct Predicting<'a> {
    accesses: &'a [FileAccess],
    pub(super) concurrency: Concurrency,
    /// Of each window of all files.
    windows: Vec<Concurrency>,
}

impl<'a> Predicting<'a> {
    pub(super) fn new(request: &ExportRequest<'a>) -> Result<Self, ExportError> {
        let none = Concurrency { processes: 1, processes_per_node: 1 };
        if request.accesses.is_empty() {
            return Ok(Self { accesses: request.accesses, concurrency: none, windows: Vec::new() });
        }
        let mut cluster = request.servers.cluster.clone();
        cluster.region_size = request.accesses[0].region_size;
        // What does not fit is said of the files by name.
        cluster.servers.iter_mut().for_each(|server| server.capacity = None);
        let as_planned = PlanRequest {
            cluster: &cluster,
            profile: &request.servers.profile,
            files: request.accesses,
            key: PlanKey::new("", 0),
            sources: Sources::default(),
            options: PlanOptions::default(),
            free_bytes: &[],
            promises_whole_regions: false,
            concurrency: None,
        };
        as_planned.check()?;
        let windows = request.accesses.iter().map(|file| file.windows.len()).max().unwrap_or(0);
        Ok(Self {
            accesses: request.accesses,
            concurrency: as_planned.concurrency(),
            windows: (0..windows).map(|window| as_planned.window_concurrency(window)).collect(),
        })
    }

    pub(super) fn access(&self, path: &str) -> Option<&'a FileAccess> {
        self.accesses.iter().find(|access| access.path == path)
    }

    /// Of all exported files whose accesses are known.
    pub(super) fn loss(
        &self,
        request: &ExportRequest<'_>,
        numbers: &[Option<usize>],
        files: &[ExportedFile],
    ) -> Option<Loss> {
        if files.iter().all(|file| self.access(&file.path).is_none()) {
            return None;
        }
        let planned_of = |file: &ExportedFile| -> Vec<(f64, Placement)> {
            let planned = request.plan.files.iter().find(|planned| planned.path == file.path);
            let windows = planned.into_iter().flat_map(|planned| &planned.windows);
            windows.map(|window| (window.start_s, renumbered(&window.placement, numbers))).collect()
        };
        let planned: Vec<Vec<(f64, Placement)>> = files.iter().map(planned_of).collect();
        let defaults: Vec<NativeLayout> =
            (0..files.len()).map(|number| NativeLayout::site_default(request.site, number)).collect();
        let profile = &request.servers.profile;
        let ideal = self.total(profile, files, |file, start_s| {
            let begun = planned[file].partition_point(|(window_s, _)| *window_s <= start_s);
            &planned[file][begun.max(1) - 1].1
        });
        let exported = self.drawn(request, files, |file| &files[file].layout);
        let default = self.drawn(request, files, |file| &defaults[file]);
        let over = |a: Throughput, b: Throughput| Gain::of(b, a, a == b);
        Some(Loss { ideal, exported, default, loss: over(exported, ideal), gain: over(default, exported) })
    }

    /// The time of all files' accesses under one layout each. Where the file system chooses targets itself, that is the mean of a few drawings, and how they differ is
    /// part of the spread.
    fn drawn<'l>(
        &self,
        request: &ExportRequest<'_>,
        files: &[ExportedFile],
        layout: impl Fn(usize) -> &'l NativeLayout,
    ) -> Throughput {
        let objects = lookup(request.site.fs.name).and_then(|native| native.objects);
        let is_drawn = |file: usize| objects.filter(|_| layout(file).parts[0].turns.len() > 1);
        let placement = |drawing: u64, file: usize| {
            let ExportedFile { placement, size_bytes, .. } = &files[file];
            let part = &layout(file).parts[0];
            match is_drawn(file) {
                Some(objects) => {
                    objects(part).draw(part, placement.region_size, *size_bytes, drawing << 32 | file as u64)
                }
                None => layout(file).placement(placement.region_size, *size_bytes),
            }
        };
        let drawings = if (0..files.len()).any(|file| is_drawn(file).is_some()) { DRAWINGS } else { 1 };
        let of_drawing = |drawing: u64| {
            let placements: Vec<Placement> = (0..files.len()).map(|file| placement(drawing, file)).collect();
            self.total(&request.servers.profile, files, |file, _| &placements[file])
        };
        mean((0..drawings).map(of_drawing).collect())
    }

    /// The time of all files' accesses, each file and window under the placement that `placement` gives for its number and start.
    fn total<'p>(
        &self,
        profile: &'p Profile,
        files: &[ExportedFile],
        placement: impl Fn(usize, f64) -> &'p Placement,
    ) -> Throughput {
        let mut sum = PredictionSum::new(profile);
        for (number, file) in files.iter().enumerate() {
            let Some(access) = self.access(&file.path) else { continue };
            for (window, concurrency) in access.windows.iter().zip(&self.windows) {
                sum.add(placement(number, window.start_s), access, window, *concurrency);
            }
        }
        sum.finish().total
    }
}
