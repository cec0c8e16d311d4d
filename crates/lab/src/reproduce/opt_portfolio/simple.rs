//! Layouts that a person would try: the hottest regions one way while there is space for them, all others another way.

use anyhow::Result;
use stripewise::laboratory::Lab;
use stripewise_layout::{Layout, Placement, ServerClass, ServerId};
use stripewise_sim::FilePlacements;
use stripewise_trace::FileAccess;

const KIB: u64 = 1 << 10;
const STEP_BYTES: u64 = 4096;

/// Servers that regions lie on.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Servers {
    Hdd,
    Ssd,
    All,
}

/// How regions lie on them.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Spread {
    /// Stripes of so many bytes over all of them.
    Fixed(u64),
    /// Stripes of the mean request over so many.
    Over(u64),
    /// One cycle holds a request; an SSD's stripe is so many times a disk's.
    Pair(u64),
    /// Each region on the one with the least to do.
    Whole,
}

/// One layout of the portfolio.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Simple {
    pub(super) name: String,
    hot: (Servers, Spread),
    cold: (Servers, Spread),
    /// How many times as much as a disk an SSD is given to do, where regions lie whole on any server.
    ssd_weight: f64,
}

/// The whole portfolio.
pub(super) fn portfolio() -> Vec<Simple> {
    use Servers::{All, Hdd, Ssd};
    let mut simple = Vec::new();
    let mut add = |name: String, hot, cold, ssd_weight| simple.push(Simple { name, hot, cold, ssd_weight });
    for kib in [64, 256, 1024, 4096] {
        let fixed = Spread::Fixed(kib * KIB);
        add(format!("{kib}KiB over all, then over disks"), (All, fixed), (Hdd, fixed), 1.0);
        add(format!("{kib}KiB over disks"), (Hdd, fixed), (Hdd, fixed), 1.0);
        add(format!("{kib}KiB over SSDs, then over disks"), (Ssd, fixed), (Hdd, fixed), 1.0);
    }
    for width in [1, 2, 4, 12] {
        let over = Spread::Over(width);
        add(format!("requests over {width} of all, then of disks"), (All, over), (Hdd, over), 1.0);
        add(format!("requests over {width} SSDs, then disks"), (Ssd, over), (Hdd, over), 1.0);
        if width > 1 {
            add(format!("requests on an SSD, then over {width} disks"), (Ssd, Spread::Over(1)), (Hdd, over), 1.0);
        }
    }
    for times in [2, 4, 8] {
        add(
            format!("pairs of 1 to {times}, then over all disks"),
            (All, Spread::Pair(times)),
            (Hdd, Spread::Pair(1)),
            1.0,
        );
    }
    add("whole on an SSD, then on a disk".to_owned(), (Ssd, Spread::Whole), (Hdd, Spread::Whole), 1.0);
    add("whole on an SSD, then requests on a disk".to_owned(), (Ssd, Spread::Whole), (Hdd, Spread::Over(1)), 1.0);
    add("requests on an SSD, then whole on a disk".to_owned(), (Ssd, Spread::Over(1)), (Hdd, Spread::Whole), 1.0);
    for weight in [1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 16.0] {
        let whole = (All, Spread::Whole);
        add(format!("whole on any server, an SSD {weight} times a disk"), whole, whole, weight);
    }
    simple
}

/// A file's region and its requests.
struct Region {
    file: usize,
    region: usize,
    requests: u64,
}

/// The regions of all files, hottest first, and the servers.
pub(super) struct Scene<'a> {
    lab: &'a Lab,
    order: Vec<Region>,
    /// By file: regions, and the byte-weighted mean request.
    files: Vec<(usize, u64)>,
    hdd: Vec<ServerId>,
    ssd: Vec<ServerId>,
}

impl<'a> Scene<'a> {
    pub(super) fn of(lab: &'a Lab, counts: &[FileAccess]) -> Self {
        let mut order = Vec::new();
        let mut files = Vec::new();
        for (file, access) in counts.iter().enumerate() {
            let regions = access.size_bytes.div_ceil(access.region_size.0) as usize;
            let mut requests = vec![0; regions];
            let (mut bytes, mut squares) = (0.0, 0.0);
            for region in access.windows.iter().flat_map(|window| &window.regions) {
                for (class, count) in &region.counts {
                    let size = access.class(*class).request_bytes as f64;
                    requests[region.region.0 as usize] += count;
                    (bytes, squares) = (bytes + *count as f64 * size, squares + *count as f64 * size * size);
                }
            }
            files.push((regions, (squares / f64::max(bytes, 1.0)).max(1.0) as u64));
            let of_file = requests.into_iter().enumerate();
            order.extend(of_file.map(|(region, requests)| Region { file, region, requests }));
        }
        order.sort_by_key(|region| (std::cmp::Reverse(region.requests), region.file, region.region));
        let of_class = |class: ServerClass| lab.cluster.ids_of_class(class);
        Self { lab, order, files, hdd: of_class(ServerClass::Hdd), ssd: of_class(ServerClass::Ssd) }
    }

    /// Where a layout of the portfolio puts every region of every file.
    pub(super) fn placements(&self, simple: &Simple) -> Result<Vec<FilePlacements>> {
        let capacity = |id| self.lab.cluster.room_bytes(id).unwrap_or(u64::MAX);
        let mut filling = Filling {
            left_bytes: self.lab.cluster.ids().map(capacity).collect(),
            work: vec![0.0; self.lab.cluster.servers.len()],
        };
        let mut layouts: Vec<Vec<Option<Layout>>> =
            self.files.iter().map(|(regions, _)| vec![None; *regions]).collect();
        for region in &self.order {
            let hot = self.layout(simple.hot, simple, region, &filling)?.filter(|layout| self.fits(layout, &filling));
            let layout = match hot {
                Some(layout) => Some(layout),
                None => self.layout(simple.cold, simple, region, &filling)?,
            };
            if let Some(layout) = &layout {
                self.book(layout, region.requests, &mut filling);
            }
            layouts[region.file][region.region] = layout;
        }
        let fallback = Layout::new(self.hdd.iter().map(|id| (*id, (256 * KIB) as u32)))?;
        let placed = |of_file: Vec<Option<Layout>>| {
            let regions = of_file.into_iter().map(|layout| layout.unwrap_or_else(|| fallback.clone()));
            let size = self.lab.cluster.region_size;
            FilePlacements::fixed(Placement::from_regions(size, regions, fallback.clone(), fallback.clone()))
        };
        Ok(layouts.into_iter().map(placed).collect())
    }

    fn layout(
        &self,
        (servers, spread): (Servers, Spread),
        simple: &Simple,
        region: &Region,
        filling: &Filling,
    ) -> Result<Option<Layout>> {
        let chosen: Vec<ServerId> = match servers {
            Servers::Hdd => self.hdd.clone(),
            Servers::Ssd => self.ssd.clone(),
            Servers::All => self.hdd.iter().chain(&self.ssd).copied().collect(),
        };
        let request_bytes = self.files[region.file].1;
        let even = |bytes: u64| Layout::new(chosen.iter().map(|id| (*id, bytes as u32)));
        Ok(match spread {
            Spread::Fixed(bytes) => Some(even(bytes)?),
            Spread::Over(width) => {
                let width = width.min(chosen.len() as u64);
                Some(even(request_bytes.div_ceil(width).next_multiple_of(STEP_BYTES))?)
            }
            Spread::Pair(times) => {
                let times_of = |id: &ServerId| if self.ssd.contains(id) { times } else { 1 };
                let parts: u64 = chosen.iter().map(times_of).sum();
                let part = request_bytes.div_ceil(parts).next_multiple_of(STEP_BYTES);
                Some(Layout::new(chosen.iter().map(|id| (*id, (times_of(id) * part) as u32)))?)
            }
            Spread::Whole => {
                let weight = |id: &ServerId| if self.ssd.contains(id) { simple.ssd_weight } else { 1.0 };
                let bytes = self.lab.cluster.region_size.0;
                let after = |id: &&ServerId| (filling.work[usize::from(id.0)] + region.requests as f64) / weight(id);
                let fitting = chosen.iter().filter(|id| filling.left_bytes[usize::from(id.0)] >= bytes);
                let least = fitting.min_by(|left, right| after(left).total_cmp(&after(right)));
                least.map(|id| Layout::new([(*id, bytes as u32)])).transpose()?
            }
        })
    }

    fn parts<'l>(&self, layout: &'l Layout) -> impl Iterator<Item = (usize, u64)> + use<'l> {
        let bytes = self.lab.cluster.region_size.0;
        let stripes = layout.stripes().iter().enumerate();
        stripes.map(move |(turn, stripe)| (usize::from(stripe.server.0), layout.view().object_bytes(turn, bytes)))
    }

    fn fits(&self, layout: &Layout, filling: &Filling) -> bool {
        self.parts(layout).all(|(server, bytes)| filling.left_bytes[server] >= bytes)
    }

    fn book(&self, layout: &Layout, requests: u64, filling: &mut Filling) {
        let region_bytes = self.lab.cluster.region_size.0 as f64;
        for (server, bytes) in self.parts(layout) {
            filling.left_bytes[server] = filling.left_bytes[server].saturating_sub(bytes);
            filling.work[server] += requests as f64 * bytes as f64 / region_bytes;
        }
    }
}

/// What is left, by server.
struct Filling {
    left_bytes: Vec<u64>,
    work: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::super::case;
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn there_are_at_least_thirty_layouts_and_all_fit_the_ssds() {
        let portfolio = portfolio();
        let names: HashSet<&str> = portfolio.iter().map(|simple| simple.name.as_str()).collect();
        assert!(portfolio.len() >= 30 && names.len() == portfolio.len());
        let case = case::all().into_iter().find(|case| case.name == "zipf-3h1s-0.3ms-64KiB-16").unwrap();
        let lab = case.lab().unwrap();
        let scene = Scene::of(&lab, &lab.count(&case.run(1, 0)));
        for simple in &portfolio {
            let placed = scene.placements(simple).unwrap();
            let placement = &placed[0].windows[0].placement;
            let mut used = [0u64; 4];
            for run in &placement.runs {
                for (server, bytes) in scene.parts(&placement.layouts[run.layout as usize]) {
                    used[server] += bytes * u64::from(run.regions);
                }
            }
            assert_eq!((placement.check(4), placement.planned_regions()), (Ok(()), 512));
            assert!(used[3] <= lab.cluster.room_bytes(ServerId(3)).unwrap(), "{}", simple.name);
        }
    }
}
