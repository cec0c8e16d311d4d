//! All files of a plan: nearest layouts, the script that sets them, and what they are predicted to lose.
//!
//! Three predictions stand next to each other, all by the planner's own model over the site's profile: of the plan as it is, of the layouts that the file
//! system can set, and of what files get there by default. Layouts are set once and not moved, so a plan with several windows is exported with the placement of
//! the window that does best over all of them.

use super::exported::{Export, ExportError, ExportRequest, ExportedFile, RefusedFile, TargetBytes, copies_bytes};
use super::fit::{Refusal, Wanted, distance, renumbered};
use super::mirrors;
use super::predicting::Predicting;
use super::script::name_of;
use super::{FittedFile, lookup};
use crate::file_system::Naming;
use crate::plan::{Plan, PlannedFile};
use crate::predict::predict;
use crate::site::{Pool, Site};
use std::path::Path;
use stripewise_layout::{Layout, Placement, RegionIndex, ServerId};
use stripewise_trace::FileAccess;

/// Windows whose placements are tried for the whole run, at most.
const TRIED_WINDOWS: usize = 8;

/// Targets of a file that are listed, at most.
const LISTED_TARGETS: usize = 16;

/// Whether anything can be exported to the site.
///
/// # Errors
///
/// [`ExportError::Site`].
pub fn check(site: &Site) -> Result<(), ExportError> {
    let lack = lookup(site.fs.name).and_then(|native| (native.lacks)(site));
    lack.map_or(Ok(()), |lack| Err(ExportError::Site { site: site.path().display().to_string(), lack }))
}

/// Exports a plan.
///
/// # Errors
///
/// [`ExportError`]; a file that cannot be exported while others can stands in [`Export::refused`].
pub fn export(request: &ExportRequest<'_>) -> Result<Export, ExportError> {
    let ExportRequest { plan, site, servers, .. } = request;
    let native = lookup(site.fs.name).expect("a site is of a known file system");
    check(site)?;
    if plan.files.is_empty() {
        return Err(ExportError::Nothing);
    }
    let numbers = target_numbers(plan, site)?;
    let predicting = Predicting::new(request)?;
    let mut free_bytes: Vec<Option<u64>> =
        servers.cluster.servers.iter().map(|server| server.capacity.map(|capacity| capacity.0)).collect();
    let mut files: Vec<ExportedFile> = Vec::new();
    let mut refused: Vec<(String, Refusal)> = Vec::new();
    for planned in &plan.files {
        match fit(request, &numbers, &predicting, planned, &free_bytes) {
            Ok(file) => {
                let taken = file.target_bytes(free_bytes.len());
                for (free, taken) in free_bytes.iter_mut().zip(taken) {
                    *free = free.map(|free| free.saturating_sub(taken));
                }
                files.push(file);
            }
            Err(reason) => refused.push((planned.path.clone(), reason)),
        }
    }
    if files.is_empty() {
        let (path, reason) = refused.swap_remove(0);
        return Err(ExportError::Refused { path, reason });
    }
    let of_file = |file: &ExportedFile| FittedFile {
        path: file.path.clone(),
        layout: file.layout.clone(),
        mirrors: file.mirror_layouts.clone(),
    };
    let fitted: Vec<FittedFile> = files.iter().map(of_file).collect();
    let script = (native.script)(site, &fitted);
    let predicted = predicting.loss(request, &numbers, &files);
    let mut notes = notes(request, &files, predicted.is_some());
    notes.extend((native.remarks)(site, &fitted));
    notes.extend(servers.profile.caveats.iter().map(ToString::to_string));
    let refused = refused.into_iter().map(|(path, reason)| RefusedFile { path, reason: reason.to_string() });
    Ok(Export { to: site.fs.name.to_owned(), files, refused: refused.collect(), predicted, notes, script })
}

/// Positions of the site's targets by the plan's servers; those that the plan does not use need not be there.
fn target_numbers(plan: &Plan, site: &Site) -> Result<Vec<Option<usize>>, ExportError> {
    let name = || site.path().display().to_string();
    let windows = || plan.files.iter().flat_map(|file| &file.windows);
    let has_mirrors = lookup(site.fs.name).is_some_and(|native| native.mirrors.is_some());
    let replicas = windows().filter(|_| has_mirrors).flat_map(|window| &window.replicas).map(|replica| &replica.layout);
    let layouts = windows().flat_map(|window| &window.placement.layouts).chain(replicas);
    let stripes = layouts.flat_map(Layout::stripes);
    let mut is_used = vec![false; plan.servers.len()];
    stripes.for_each(|stripe| is_used[usize::from(stripe.server.0)] = true);
    let mut unknown = Vec::new();
    let mut numbers = Vec::new();
    for (server, is_used) in plan.servers.iter().zip(is_used) {
        let number = site.targets.iter().position(|target| target.name == server.name);
        match number {
            Some(number) if is_used && site.class(number) != server.class => {
                return Err(ExportError::OtherClass {
                    site: name(),
                    name: server.name.clone(),
                    planned: server.class.to_string(),
                    found: site.class(number).to_string(),
                });
            }
            None if is_used => unknown.push(server.name.clone()),
            _ => {}
        }
        numbers.push(number);
    }
    if unknown.is_empty() { Ok(numbers) } else { Err(ExportError::OtherServers { site: name(), servers: unknown }) }
}

fn fit(
    request: &ExportRequest<'_>,
    numbers: &[Option<usize>],
    predicting: &Predicting<'_>,
    planned: &PlannedFile,
    free_bytes: &[Option<u64>],
) -> Result<ExportedFile, Refusal> {
    let site = request.site;
    let access = predicting.access(&planned.path);
    let seconds = |placement: &Placement| {
        access.map(|access| {
            predict(placement, access, &request.servers.profile, None, predicting.concurrency).total.time_s
        })
    };
    let windows = planned.windows.iter().take(TRIED_WINDOWS);
    let placements: Vec<Placement> = windows.map(|window| renumbered(&window.placement, numbers)).collect();
    let times: Vec<f64> = match placements.len() {
        1 => vec![0.0],
        _ => placements.iter().map(|placement| seconds(placement).unwrap_or(0.0)).collect(),
    };
    let best = (0..placements.len()).min_by(|a, b| times[*a].total_cmp(&times[*b])).unwrap_or(0);
    let placement = &placements[best];
    let weights = weights(planned, placement, access);
    let judge = |exported: &Placement| seconds(exported).unwrap_or_else(|| distance(placement, exported, &weights));
    let wanted =
        Wanted { size_bytes: planned.size_bytes, placement, weights: &weights, judge: &judge, free_bytes, copies: &[] };
    let native = lookup(site.fs.name).expect("a site is of a known file system");
    let layout = (native.fit)(site, &wanted)?;
    let replicas = mirrors::renumbered(&planned.windows[best].replicas, &|server| {
        numbers[usize::from(server.0)].map_or(server, |number| ServerId(number as u16))
    });
    let most = native.mirrors.as_ref().map_or(0, |mirrors| mirrors.most);
    let mut copies = vec![layout];
    for mirror in mirrors::wanted(placement, &replicas, most) {
        let taken = copies_bytes(copies.iter(), site.targets.len(), planned.size_bytes);
        let left = |(free, taken): (&Option<u64>, u64)| free.map(|free| free.saturating_sub(taken));
        let free_bytes: Vec<Option<u64>> = free_bytes.iter().zip(taken).map(left).collect();
        let judge = |exported: &Placement| seconds(exported).unwrap_or_else(|| distance(&mirror, exported, &weights));
        let wanted = Wanted {
            size_bytes: planned.size_bytes,
            placement: &mirror,
            weights: &weights,
            judge: &judge,
            free_bytes: &free_bytes,
            copies: &copies,
        };
        // The first copy has all bytes; what there is no room for is said in the notes.
        let Some(layout) = (native.fit)(site, &wanted).ok() else { break };
        copies.push(layout);
    }
    let mirror_layouts = copies.split_off(1);
    let layout = copies.remove(0);
    let exported = layout.placement(placement.region_size, planned.size_bytes);
    let regions = planned.size_bytes.div_ceil(placement.region_size.0).max(1);
    let same = |region: u64| {
        let region = RegionIndex(region as u32);
        placement.layout_of(region) == exported.layout_of(region)
    };
    // Which target of a pool has which bytes, the file system decides.
    let is_spread = site.fs.naming == Naming::Pools && layout.parts.iter().any(|part| part.turns.len() > 1);
    let copies = std::iter::once(&layout).chain(&mirror_layouts);
    let mut targets: Vec<TargetBytes> = copies_bytes(copies, site.targets.len(), planned.size_bytes)
        .into_iter()
        .zip(&site.targets)
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, target)| TargetBytes { name: target.name.clone(), bytes })
        .collect();
    targets.sort_by_key(|target| std::cmp::Reverse(target.bytes));
    targets.truncate(LISTED_TARGETS);
    Ok(ExportedFile {
        path: planned.path.clone(),
        has_path: name_of(&planned.path).is_some(),
        size_bytes: planned.size_bytes,
        planned_parts: placement.runs.len().max(1),
        parts: layout.parts.len(),
        exact: planned.windows.len() == 1 && !is_spread && (0..regions).all(same),
        mirrors: mirror_layouts.len(),
        targets,
        placement: exported,
        layout,
        mirror_layouts,
    })
}

/// Bytes that are asked for of each planned region, or its own where no accesses are known.
fn weights(planned: &PlannedFile, placement: &Placement, access: Option<&FileAccess>) -> Vec<u64> {
    let regions = placement.planned_regions().max(1) as usize;
    let Some(access) = access else {
        let region_size = placement.region_size.0;
        return (0..regions as u64)
            .map(|region| planned.size_bytes.saturating_sub(region * region_size).clamp(1, region_size))
            .collect();
    };
    let mut weights = vec![0u64; regions];
    for region in access.windows.iter().flat_map(|window| &window.regions) {
        let asked = region
            .counts
            .iter()
            .map(|(class, count)| count.saturating_mul(access.classes[usize::from(class.0)].request_bytes));
        if let Some(weight) = weights.get_mut(region.region.0 as usize) {
            *weight = asked.fold(*weight, u64::saturating_add);
        }
    }
    weights
}

fn notes(request: &ExportRequest<'_>, files: &[ExportedFile], is_predicted: bool) -> Vec<String> {
    let ExportRequest { plan, site, .. } = request;
    let mut notes = Vec::new();
    if !is_predicted {
        notes.push(
            "the accesses of the files are not known, so nothing is predicted: name the trace with --trace to see what is lost".to_owned(),
        );
    }
    let moves: usize = plan.files.iter().flat_map(|file| &file.windows).map(|window| window.moves.len()).sum();
    if moves > 0 {
        notes.push(format!(
            "the plan moves regions {moves} times during the run; layouts are set once, so each file has the placement of the window that does best over all"
        ));
    }
    let has_replicas = plan.files.iter().flat_map(|file| &file.windows).any(|window| !window.replicas.is_empty());
    let mirrors = lookup(site.fs.name).and_then(|native| native.mirrors.as_ref());
    match mirrors.filter(|_| files.iter().any(|file| file.mirrors > 0)) {
        Some(mirrors) => notes.push(format!("replicas are exported as copies of whole files: {}", mirrors.note)),
        None if has_replicas && mirrors.is_some() => {
            notes.push(
                "the plan's replicas are not exported: the targets or the files' layouts have no space for copies of whole files"
                    .to_owned(),
            );
        }
        None if has_replicas => {
            notes.push("the plan's replicas are not exported: each file has its first copy".to_owned());
        }
        None => {}
    }
    notes.extend(uncounted_copies(site, files));
    let mut nameless = files.iter().filter(|file| !file.has_path);
    if let Some(first) = nameless.next() {
        let others = and_others(nameless.count());
        notes.push(format!(
            "the logs have no path of {}{others}: the script has such layouts as comments, in which the path is to be filled in",
            first.path.escape_debug(),
        ));
    }
    if let Some(mount) = &site.file.mount {
        let with_path = files.iter().filter(|file| file.has_path);
        let mut others = with_path.filter(|file| !Path::new(&file.path).starts_with(mount));
        if let Some(first) = others.next() {
            let others = others.count();
            let (lie, do_so) = if others == 0 { ("does not lie", "it does") } else { ("do not lie", "they do") };
            notes.push(format!(
                "{}{} {lie} below {}: the script works only where {do_so}",
                first.path.escape_debug(),
                and_others(others),
                mount.display()
            ));
        }
    }
    notes
}

/// Behind the first one's name.
fn and_others(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => " and 1 other file".to_owned(),
        count => format!(" and {count} other files"),
    }
}

/// Pools that keep copies of all they have, but whose copies the site does not say.
fn uncounted_copies(site: &Site, files: &[ExportedFile]) -> Option<String> {
    let named =
        |pool: &str| files.iter().flat_map(|file| &file.layout.parts).any(|part| part.pool.as_deref() == Some(pool));
    let is_uncounted = |pool: &&Pool| pool.copies.is_none() && named(&pool.name);
    let pools: Vec<&str> = site.pools.iter().filter(is_uncounted).map(|pool| pool.name.as_str()).collect();
    (site.fs.naming == Naming::Pools && !pools.is_empty()).then(|| {
        format!(
            "{} does not say how many copies {} keeps, so that a write counts once: add copies = 3 to the pool where there are three",
            site.path().display(),
            pools.join(", ")
        )
    })
}
