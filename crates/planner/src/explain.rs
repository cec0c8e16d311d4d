//! Why a region lies where a plan puts it: what is asked of it, what other layouts would bring with everything else in place, and what
//! stands against them.
//!
//! Times are those of the prediction ([`crate::predict`]), one window at a time. A region's alternatives are the layouts that the other policies
//! give it, the region whole on one server of each kind, and spread over each kind in stripes of its mean request's share.

mod alternatives;
mod text;

pub use text::{overview_text, region_text};

use crate::compare::compare;
use crate::map::layout_text;
use crate::plan::{Gain, Plan, Verdict};
use crate::policy::{Optimum, PolicyName, region_bytes, region_count};
use crate::predict::{Busiest, Prediction, PredictionSum, Throughput};
use crate::request::{PlanRequest, RequestError};
use crate::verdict::layouts_by_region;
use alternatives::layouts_of;
use serde::Serialize;
use stripewise_layout::figures::duration;
use stripewise_layout::{ByteCount, Layout, Placement, RegionIndex, ServerClass, ServerId};
use stripewise_model::Caveat;
use stripewise_trace::{AccessClass, FileAccess, RegionAccess};

/// Regions that an overview names.
const REGIONS_SHOWN: usize = 10;

/// Times nearer to each other than this share are equal: what one region changes may be lost in the estimate.
const SAME_TIME: f64 = 1e-6;

/// Why a plan cannot be explained from the inputs given.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ExplainError {
    /// The request itself is refused.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Plan and request do not list the same files in the same order.
    #[error(
        "the plan is for {planned}, but the trace has {found} in its place; give the trace that the plan was made from"
    )]
    OtherFiles {
        /// The first file of the plan that differs, or `no file`.
        planned: String,
        /// The file of the request in its place, or `no file`.
        found: String,
    },
    /// The file ends before the region.
    #[error("{path} has regions 0 to {last}, not {region}")]
    Region {
        /// File of the plan.
        path: String,
        /// The region that was asked for.
        region: RegionIndex,
        /// The last region that the file has.
        last: u32,
    },
}

/// A plan beside what it was made from.
pub struct Explainer<'a> {
    plan: &'a Plan,
    request: &'a PlanRequest<'a>,
}

/// Which station sets the pace of a window.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Pace {
    /// Name of the server.
    pub server: String,
    /// `device` or `link`.
    pub station: &'static str,
    /// Share of the time in which it is busy, 0 to 1.
    pub busy: f64,
}

/// One window of the run.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct WindowPace {
    /// Seconds from the start of the run.
    pub start_s: f64,
    /// Seconds from the start of the run.
    pub end_s: f64,
    /// Predicted for its requests.
    pub time_s: f64,
    /// Relative spread of that time, and of all that is predicted for the window.
    pub spread: f64,
    /// `None` for a window without requests.
    pub pace: Option<Pace>,
}

/// A region by the service time that its requests take.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct HeavyRegion {
    /// Path as the plan has it.
    pub file: String,
    /// Number of the region within that file.
    pub region: RegionIndex,
    /// In all windows.
    pub requests: u64,
    /// Bytes of those requests.
    pub bytes: u64,
    /// As [`layout_text`] writes it, in the first window.
    pub layout: String,
    /// Service seconds of all its requests on all servers, devices and links.
    pub service_s: f64,
    /// Of the service seconds of all regions.
    pub share: f64,
}

/// What more room would bring.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct CapacityPrice {
    /// The servers that get the room, in equal parts.
    pub servers: Vec<String>,
    /// Bytes that they have now.
    pub room_bytes: u64,
    /// Seconds that a run would save for one GiB more in all; below 0 it loses.
    pub saved_s_per_gib: f64,
    /// True for the dual price of the plan's bound, false for a second plan of the same policy.
    pub is_dual: bool,
}

/// What [`Explainer::overview`] finds: where the time of a plan goes and what keeps it from being
/// less.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Overview {
    /// Whether the plan is worth its move.
    pub verdict: Verdict,
    /// What it gains over `def`, all requests together.
    pub gain: Gain,
    /// Whose plan it is.
    pub policy: PolicyName,
    /// Predicted for the run.
    pub time_s: f64,
    /// Relative spread of that time.
    pub spread: f64,
    /// How far the plan is from what is possible at all, of policies that know.
    pub optimum: Option<Optimum>,
    /// True when any server is emulated: times are those of device models.
    pub emulated: bool,
    /// In order of time.
    pub windows: Vec<WindowPace>,
    /// Servers whose room does not take another region whole.
    pub full: Vec<String>,
    /// The regions whose requests take most service time, most first.
    pub regions: Vec<HeavyRegion>,
    /// `None` where no server of the kind has a known room.
    pub ssd_price: Option<CapacityPrice>,
    /// Why figures of the profile may be wrong.
    pub caveats: Vec<Caveat>,
}

/// The requests of one class.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Asked {
    /// Size, direction and order of each.
    #[serde(flatten)]
    pub class: AccessClass,
    /// How many, in the window explained.
    pub requests: u64,
}

/// A layout that the region could have.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Alternative {
    /// Whose it is: policies, or a description.
    pub names: Vec<String>,
    /// As [`layout_text`] writes it.
    pub layout: String,
    /// Whether the plan has chosen it.
    pub is_planned: bool,
    /// Predicted for the window with this layout and everything else in place.
    pub time_s: f64,
    /// Above the time of the planned layout.
    pub difference_s: f64,
    /// Bytes of the region on SServers.
    pub ssd_bytes: u64,
    /// Servers whose room is too small for it beside everything else; empty when it fits.
    pub lacking: Vec<Lack>,
}

/// A server on which an alternative does not fit.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Lack {
    /// Name of the server.
    pub server: String,
    /// Bytes that it lacks.
    pub bytes: u64,
}

/// What [`Explainer::region`] finds.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RegionExplanation {
    /// Path as the plan has it.
    pub file: String,
    /// Number of the region within that file.
    pub region: RegionIndex,
    /// Bytes of the file that lie in the region; less than its size in the last one.
    pub region_bytes: u64,
    /// Whose plan it is.
    pub policy: PolicyName,
    /// The planned layout in `window`, as [`layout_text`] writes it.
    pub layout: String,
    /// True when any server is emulated: times are those of device models.
    pub emulated: bool,
    /// The window in which the region is asked for most.
    pub window: WindowPace,
    /// Requests to the region in `window`, by class.
    pub asked: Vec<Asked>,
    /// Processes that access the region in `window`; 0 if none does.
    pub processes: u32,
    /// By time, the planned one among them.
    pub alternatives: Vec<Alternative>,
    /// Seconds of the window that a GiB of SSD capacity saves here: against the fastest layout without SServers; `None` where the region takes none.
    pub ssd_worth_s_per_gib: Option<f64>,
    /// One sentence.
    pub reason: String,
    /// Why figures of the profile may be wrong.
    pub caveats: Vec<Caveat>,
}

impl<'a> Explainer<'a> {
    /// `request` must be what `plan` was made from, with the plan's options.
    ///
    /// # Errors
    ///
    /// [`ExplainError::Request`] if the request is refused, [`ExplainError::OtherFiles`] if plan
    /// and request differ in their files.
    pub fn new(plan: &'a Plan, request: &'a PlanRequest<'a>) -> Result<Self, ExplainError> {
        request.check()?;
        let found = |number: usize| request.files.get(number).map_or("no file", |file| file.path.as_str());
        let planned = |number: usize| plan.files.get(number).map_or("no file", |file| file.path.as_str());
        let files = plan.files.len().max(request.files.len());
        match (0..files).find(|number| planned(*number) != found(*number)) {
            Some(number) => {
                Err(ExplainError::OtherFiles { planned: planned(number).to_owned(), found: found(number).to_owned() })
            }
            None => Ok(Self { plan, request }),
        }
    }

    /// The plan as a whole. Makes a second plan, with more room, where the plan has no dual prices.
    ///
    /// # Errors
    ///
    /// [`ExplainError::Request`] if the second plan is refused.
    pub fn overview(&self) -> Result<Overview, ExplainError> {
        let windows = self.request.files.iter().map(|file| file.windows.len()).max().unwrap_or(0);
        let region_size = self.request.cluster.region_size.0;
        let full = self.plan.servers.iter().filter(|server| {
            server.room_bytes.is_some_and(|capacity| server.used_bytes.saturating_add(region_size) > capacity)
        });
        Ok(Overview {
            verdict: self.plan.verdict.clone(),
            gain: self.plan.gain.total,
            policy: self.plan.policy,
            time_s: self.plan.predicted.total.time_s,
            spread: self.plan.predicted.total.spread,
            optimum: self.plan.optimum.clone(),
            emulated: self.plan.emulated,
            windows: (0..windows).map(|number| self.window_pace(number)).collect(),
            full: full.map(|server| server.name.clone()).collect(),
            regions: self.heavy_regions(),
            ssd_price: self.ssd_price()?,
            caveats: self.request.profile.caveats.clone(),
        })
    }

    /// One region of the file at position `file` of the plan.
    ///
    /// # Errors
    ///
    /// [`ExplainError::Region`] past the last region, [`ExplainError::Request`] if another policy's
    /// plan is refused.
    ///
    /// # Panics
    ///
    /// If the plan has no file of that position.
    pub fn region(&self, file: usize, region: RegionIndex) -> Result<RegionExplanation, ExplainError> {
        let (access, planned) = (&self.request.files[file], &self.plan.files[file]);
        let last = region_count(access).saturating_sub(1);
        if region.0 > last {
            return Err(ExplainError::Region { path: access.path.clone(), region, last });
        }
        let in_window = |number: usize| access.windows[number].regions.iter().find(|found| found.region == region);
        let requests = |number: &usize| in_window(*number).map_or(0, requests_of);
        // Of equal ones the first.
        let number = (0..access.windows.len()).rev().max_by_key(requests).unwrap_or(0);
        let own = access.windows.get(number).and_then(|_| in_window(number));
        let window = self.window_pace(number);
        let placement = planned.placement_at(window.start_s);
        let layout = placement.layout_of(region);
        let alternatives = self.alternatives(file, region, number, own)?;
        let bytes = region_bytes(access, region);
        let asked = own.into_iter().flat_map(|own| &own.counts);
        Ok(RegionExplanation {
            file: access.path.clone(),
            region,
            region_bytes: bytes,
            policy: self.plan.policy,
            layout: layout_text(layout, self.request.cluster),
            emulated: self.plan.emulated,
            asked: asked.map(|(class, count)| Asked { class: access.class(*class), requests: *count }).collect(),
            processes: own.map_or(0, |own| own.processes),
            ssd_worth_s_per_gib: ssd_worth(&alternatives),
            reason: reason(self.plan.policy, own.is_some(), &alternatives),
            alternatives,
            window,
            caveats: self.request.profile.caveats.clone(),
        })
    }

    /// Predicted for the requests of one window alone, by its number.
    #[must_use]
    pub fn prediction(&self, number: usize) -> Prediction {
        self.window(number, None).0.finish()
    }

    fn window_pace(&self, number: usize) -> WindowPace {
        let (sum, bounds) = self.window(number, None);
        let busiest = sum.busiest();
        let (start_s, end_s) = bounds;
        let Throughput { time_s, spread, .. } = sum.finish().total;
        WindowPace { start_s, end_s, time_s, spread, pace: busiest.map(|found| self.pace(found)) }
    }

    fn pace(&self, found: Busiest) -> Pace {
        let server = self.request.cluster.servers[found.bottleneck.server].name.clone();
        Pace { server, station: found.bottleneck.station.name(), busy: found.busy }
    }

    /// One window of all files, with one file's placement replaced; and its start and end.
    fn window<'p>(
        &'p self,
        number: usize,
        replaced: Option<(usize, &'p Placement)>,
    ) -> (PredictionSum<'p>, (f64, f64)) {
        let mut sum = PredictionSum::new(self.request.profile);
        let mut bounds = (0.0, 0.0);
        let concurrency = self.request.window_concurrency(number);
        for (file, (access, planned)) in self.request.files.iter().zip(&self.plan.files).enumerate() {
            if let Some(window) = access.windows.get(number) {
                bounds = (window.start_s, window.end_s);
                let placement = match replaced {
                    Some((changed, placement)) if changed == file => placement,
                    _ => planned.placement_at(window.start_s),
                };
                sum.add(placement, access, window, concurrency);
            }
        }
        (sum, bounds)
    }

    fn alternatives(
        &self,
        file: usize,
        region: RegionIndex,
        number: usize,
        own: Option<&RegionAccess>,
    ) -> Result<Vec<Alternative>, ExplainError> {
        let (access, planned) = (&self.request.files[file], &self.plan.files[file]);
        let start_s = access.windows.get(number).map_or(0.0, |window| window.start_s);
        let placement = planned.placement_at(start_s);
        let current = placement.layout_of(region);
        let others: Vec<PolicyName> =
            PolicyName::ALL.into_iter().filter(|policy| *policy != self.plan.policy).collect();
        let of_policies = compare(self.request, &others)?
            .plans
            .into_iter()
            .map(|plan| (plan.policy.to_string(), plan.files[file].placement_at(start_s).layout_of(region).clone()));
        let built = layouts_of(self.request, self.plan, access, own, region);
        let named = std::iter::once((self.plan.policy.to_string(), current.clone())).chain(of_policies).chain(built);
        let mut distinct: Vec<(Vec<String>, Layout)> = Vec::new();
        for (name, layout) in named {
            match distinct.iter_mut().find(|(_, known)| *known == layout) {
                Some((names, _)) => names.push(name),
                None => distinct.push((vec![name], layout)),
            }
        }
        let planned_s = self.window(number, None).0.finish().total.time_s;
        let bytes = region_bytes(access, region);
        let mut alternatives: Vec<Alternative> = distinct
            .into_iter()
            .map(|(names, layout)| {
                let is_planned = layout == *current;
                let changed = with_layout(placement, access, region, &layout);
                let time_s = if is_planned {
                    planned_s
                } else {
                    self.window(number, Some((file, &changed))).0.finish().total.time_s
                };
                Alternative {
                    names,
                    is_planned,
                    time_s,
                    difference_s: time_s - planned_s,
                    ssd_bytes: self.bytes_on(&layout, bytes, |class| class == ServerClass::Ssd),
                    lacking: self.lacking(current, &layout, bytes),
                    layout: layout_text(&layout, self.request.cluster),
                }
            })
            .collect();
        alternatives
            .sort_by(|one, other| one.time_s.total_cmp(&other.time_s).then(other.is_planned.cmp(&one.is_planned)));
        Ok(alternatives)
    }

    fn bytes_on(&self, layout: &Layout, bytes: u64, wanted: impl Fn(ServerClass) -> bool) -> u64 {
        let of_turn = |(turn, stripe): (usize, &stripewise_layout::Stripe)| {
            let class = self.request.cluster.servers[usize::from(stripe.server.0)].class;
            if wanted(class) { layout.view().object_bytes(turn, bytes) } else { 0 }
        };
        layout.stripes().iter().enumerate().map(of_turn).sum()
    }

    /// Where the region would not fit with `layout` instead of `current`.
    fn lacking(&self, current: &Layout, layout: &Layout, bytes: u64) -> Vec<Lack> {
        let mut used: Vec<u64> = self.plan.servers.iter().map(|server| server.used_bytes).collect();
        for (turn, stripe) in current.stripes().iter().enumerate() {
            let used = &mut used[usize::from(stripe.server.0)];
            *used = used.saturating_sub(current.view().object_bytes(turn, bytes));
        }
        let lack = |(turn, stripe): (usize, &stripewise_layout::Stripe)| {
            let number = usize::from(stripe.server.0);
            let server = &self.plan.servers[number];
            let needed = used[number].saturating_add(layout.view().object_bytes(turn, bytes));
            let lacking = needed.saturating_sub(server.room_bytes.unwrap_or(u64::MAX));
            (lacking > 0).then(|| Lack { server: server.name.clone(), bytes: lacking })
        };
        layout.stripes().iter().enumerate().filter_map(lack).collect()
    }

    fn heavy_regions(&self) -> Vec<HeavyRegion> {
        let mut all: Vec<(f64, usize, RegionIndex)> = Vec::new();
        let mut services = alternatives::Services::new(self.request.profile);
        for (file, access) in self.request.files.iter().enumerate() {
            let mut by_region = vec![0.0; region_count(access) as usize];
            for window in &access.windows {
                let placement = self.plan.files[file].placement_at(window.start_s);
                services.add(placement, access, window, &mut by_region);
            }
            all.extend(
                by_region.into_iter().zip(0..).map(|(service_s, number)| (service_s, file, RegionIndex(number))),
            );
        }
        let total_s: f64 = all.iter().map(|(service_s, ..)| service_s).sum();
        all.sort_by(|one, other| other.0.total_cmp(&one.0).then((one.1, one.2).cmp(&(other.1, other.2))));
        let heavy = all.into_iter().filter(|(service_s, ..)| *service_s > 0.0).take(REGIONS_SHOWN);
        heavy.map(|(service_s, file, region)| self.heavy_region(service_s, service_s / total_s, file, region)).collect()
    }

    fn heavy_region(&self, service_s: f64, share: f64, file: usize, region: RegionIndex) -> HeavyRegion {
        let (access, planned) = (&self.request.files[file], &self.plan.files[file]);
        let own = access.windows.iter().flat_map(|window| window.regions.iter().filter(|found| found.region == region));
        let counts = own.flat_map(|own| &own.counts);
        let (mut requests, mut bytes) = (0u64, 0u64);
        for (class, count) in counts {
            requests = requests.saturating_add(*count);
            bytes = bytes.saturating_add(count.saturating_mul(access.class(*class).request_bytes));
        }
        let layout = layout_text(planned.initial().layout_of(region), self.request.cluster);
        HeavyRegion { file: access.path.clone(), region, requests, bytes, layout, service_s, share }
    }

    /// The same policy with one GiB more, spread over the SServers of known room.
    fn ssd_price(&self) -> Result<Option<CapacityPrice>, ExplainError> {
        let mut cluster = self.request.cluster.clone();
        let known = |number: usize| self.plan.servers[number].room_bytes.is_some();
        let is_wanted = |number: usize| self.plan.servers[number].class == ServerClass::Ssd && known(number);
        let wanted: Vec<usize> = (0..self.plan.servers.len()).filter(|number| is_wanted(*number)).collect();
        if wanted.is_empty() {
            return Ok(None);
        }
        let servers = wanted.iter().map(|number| self.plan.servers[*number].name.clone()).collect();
        let room_bytes = wanted.iter().filter_map(|number| self.plan.servers[*number].room_bytes).sum();
        if let Some(optimum) = &self.plan.optimum {
            // The price of a server is for as much more on each of its kind; one GiB in all is a share for each.
            let prices = wanted.iter().filter_map(|number| optimum.prices.get(*number));
            let saved_s_per_gib = prices.map(|price| price.room_s_per_gib).sum::<f64>() / wanted.len() as f64;
            return Ok(Some(CapacityPrice { servers, room_bytes, saved_s_per_gib, is_dual: true }));
        }
        let more = (1u64 << 30) / wanted.len() as u64;
        for number in &wanted {
            let capacity = self.plan.servers[*number].room_bytes.unwrap_or(0);
            let kept_free_bytes = cluster.kept_free_bytes(ServerId(*number as u16));
            let capacity = capacity.saturating_add(kept_free_bytes).saturating_add(more);
            cluster.servers[*number].capacity = Some(ByteCount(capacity));
        }
        let mut request = PlanRequest { cluster: &cluster, ..self.request.clone() };
        request.options.ssd_room = None;
        let enlarged = crate::compare::plan(self.plan.policy, &request)?;
        let saved_s_per_gib = self.plan.predicted.total.time_s - enlarged.predicted.total.time_s;
        Ok(Some(CapacityPrice { servers, room_bytes, saved_s_per_gib, is_dual: false }))
    }
}

fn requests_of(region: &RegionAccess) -> u64 {
    region.counts.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count))
}

/// The same placement but for one region.
fn with_layout(placement: &Placement, access: &FileAccess, region: RegionIndex, layout: &Layout) -> Placement {
    let beyond = &placement.layouts[placement.beyond as usize];
    let regions = region_count(access) as usize;
    let all = layouts_by_region(placement).chain(std::iter::repeat(beyond)).take(regions).enumerate();
    let own = all.map(|(number, own)| if number == region.0 as usize { layout } else { own });
    Placement::from_regions(placement.region_size, own.cloned(), beyond.clone(), placement.fallback_layout().clone())
}

/// What the region's SSD capacity saves per GiB against its fastest layout without SServers.
fn ssd_worth(alternatives: &[Alternative]) -> Option<f64> {
    let planned = alternatives.iter().find(|one| one.is_planned)?;
    let without = alternatives.iter().find(|one| one.ssd_bytes == 0 && one.lacking.is_empty())?;
    let gib = planned.ssd_bytes as f64 / (1u64 << 30) as f64;
    (planned.ssd_bytes > 0).then(|| (without.time_s - planned.time_s) / gib)
}

fn reason(policy: PolicyName, is_accessed: bool, alternatives: &[Alternative]) -> String {
    if !is_accessed {
        return "nothing in the trace asks for this region; it lies where the policy puts what is left".to_owned();
    }
    let planned = alternatives.iter().find(|one| one.is_planned).map_or(0.0, |one| one.time_s);
    let faster = |one: &&Alternative| one.time_s < planned * (1.0 - SAME_TIME);
    let names = |one: &Alternative| one.names.join(", ");
    let saved = |one: &Alternative| duration(planned - one.time_s);
    let fitting = alternatives.iter().filter(faster).find(|one| one.lacking.is_empty());
    let lacking = alternatives.iter().filter(faster).find(|one| !one.lacking.is_empty());
    match (fitting, lacking) {
        (None, None) => "no alternative is predicted to be faster".to_owned(),
        (None, Some(one)) => {
            let servers: Vec<&str> = one.lacking.iter().map(|lack| lack.server.as_str()).collect();
            format!("capacity: {} would save {}, but does not fit on {}", names(one), saved(one), servers.join(", "))
        }
        (Some(one), _) => format!(
            "{policy} decides by its own cost of one request, which does not see what the others load: by this prediction {} would save {} and fits",
            names(one),
            saved(one)
        ),
    }
}
