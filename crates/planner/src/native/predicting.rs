//! What the exported files' accesses are predicted to take: as planned, as exported and by default.

use super::exported::{ExportError, ExportRequest, ExportedFile, Loss};
use super::fit::renumbered;
use super::whereabouts::{Whereabouts, drawings, mean};
use crate::plan::Gain;
use crate::predict::{Laid, PredictionSum, Throughput};
use crate::request::{PlanOptions, PlanRequest};
use crate::sources::{PlanKey, Sources};
use stripewise_model::{Concurrency, Profile};
use stripewise_trace::FileAccess;

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
        let planned_of = |file: &ExportedFile| -> Vec<(f64, Laid)> {
            let planned = request.plan.files.iter().find(|planned| planned.path == file.path);
            let windows = planned.into_iter().flat_map(|planned| &planned.windows);
            windows.map(|window| (window.start_s, renumbered(&window.placement, numbers).into())).collect()
        };
        let planned: Vec<Vec<(f64, Laid)>> = files.iter().map(planned_of).collect();
        let profile = &request.servers.profile;
        let ideal = self.total(profile, files, |file, start_s| {
            let begun = planned[file].partition_point(|(window_s, _)| *window_s <= start_s);
            &planned[file][begun.max(1) - 1].1
        });
        let exported = files.iter().enumerate().map(|(number, file)| Whereabouts::exported(request.site, file, number));
        let exported = self.mean(profile, files, &exported.collect::<Vec<_>>());
        let by_default = |(number, file): (usize, &ExportedFile)| {
            Whereabouts::by_default(request.site, number, file.placement.region_size, file.size_bytes)
        };
        let default = self.mean(profile, files, &files.iter().enumerate().map(by_default).collect::<Vec<_>>());
        let over = |a: Throughput, b: Throughput| Gain::of(b, a, a == b);
        Some(Loss { ideal, exported, default, loss: over(exported, ideal), gain: over(default, exported) })
    }

    /// The time of all files' accesses where each file lies as it is said.
    fn mean(&self, profile: &Profile, files: &[ExportedFile], lying: &[Whereabouts]) -> Throughput {
        let of_drawing = |laid: Vec<Laid>| self.total(profile, files, |file, _| &laid[file]);
        mean(&drawings(lying).map(of_drawing).collect::<Vec<_>>())
    }

    /// The time of all files' accesses, each file and window where `laid` says that it lies by its number and start.
    fn total<'p>(
        &self,
        profile: &'p Profile,
        files: &[ExportedFile],
        laid: impl Fn(usize, f64) -> &'p Laid,
    ) -> Throughput {
        let mut sum = PredictionSum::new(profile);
        for (number, file) in files.iter().enumerate() {
            let Some(access) = self.access(&file.path) else { continue };
            for (window, concurrency) in access.windows.iter().zip(&self.windows) {
                sum.add_laid(laid(number, window.start_s), access, window, *concurrency);
            }
        }
        sum.finish().total
    }
}
