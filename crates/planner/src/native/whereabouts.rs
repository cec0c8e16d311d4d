//! Where files lie, as far as it can be said: what predictions are made for.
//!
//! A file system that chooses the targets of objects itself leaves that open. A few drawings then stand for all that it
//! may do: what is predicted is their mean, and how they differ is part of its spread.

use super::drawn::Objects;
use super::exported::ExportedFile;
use super::layout::NativeLayout;
use super::lookup;
use crate::predict::{Laid, Throughput};
use crate::site::Site;
use stripewise_layout::{ByteCount, Placement};

/// Drawings of where a file system that chooses targets itself may put files, at least and at most.
const DRAWINGS: std::ops::RangeInclusive<u64> = 8..=256;

/// Regions of all drawings together, as far as that gives as many of them. Few regions differ much from one drawing to the next, and are drawn soon.
const DRAWN_REGIONS: u64 = 16_384;

/// Where a file lies.
#[derive(Clone, Debug)]
pub enum Whereabouts {
    /// There.
    Known(Placement),
    /// Where the file system chooses.
    Chosen(Chosen),
}

/// A file whose objects lie on targets that the file system chooses.
#[derive(Clone, Debug)]
pub struct Chosen {
    objects: Objects,
    /// Those that it chooses among, as positions in the site.
    targets: Vec<usize>,
    region_size: ByteCount,
    size_bytes: u64,
    /// Of the file: those of other numbers are drawn by themselves.
    number: usize,
}

impl Whereabouts {
    /// A file once its layout is set.
    #[must_use]
    pub fn exported(site: &Site, file: &ExportedFile, number: usize) -> Self {
        let targets = file.layout.parts[0].turns.iter().map(|turn| turn.target).collect();
        Self::of(site, &file.layout, targets, (file.placement.region_size, file.size_bytes), number)
    }

    /// A file of that size by the site's default. Where the file system chooses targets, that is among all of the
    /// default's pool, however few of its objects take turns.
    #[must_use]
    pub fn by_default(site: &Site, number: usize, region_size: ByteCount, size_bytes: u64) -> Self {
        let (targets, ..) = site.default_layout();
        Self::of(site, &NativeLayout::site_default(site, number), targets, (region_size, size_bytes), number)
    }

    fn of(
        site: &Site,
        layout: &NativeLayout,
        targets: Vec<usize>,
        (region_size, size_bytes): (ByteCount, u64),
        number: usize,
    ) -> Self {
        let objects = lookup(site.fs.name).and_then(|native| native.objects).filter(|_| targets.len() > 1);
        match objects {
            Some(objects) => {
                let objects = objects(&layout.parts[0]);
                Self::Chosen(Chosen { objects, targets, region_size, size_bytes, number })
            }
            None => Self::Known(layout.placement(region_size, size_bytes)),
        }
    }

    fn drawn_regions(&self) -> u64 {
        match self {
            Self::Known(_) => 0,
            Self::Chosen(chosen) => chosen.size_bytes.div_ceil(chosen.region_size.0),
        }
    }

    fn drawn(&self, drawing: u64) -> Laid {
        match self {
            Self::Known(placement) => placement.clone().into(),
            Self::Chosen(Chosen { objects, targets, region_size, size_bytes, number }) => Laid {
                placement: objects.draw(targets, *region_size, *size_bytes, drawing << 32 | *number as u64),
                run_bytes: Some(objects.unit_bytes),
            },
        }
    }
}

/// How the files lie in each drawing, one after the other, since those of large files are large; once where all are
/// known. The same files give the same ones.
pub fn drawings(files: &[Whereabouts]) -> impl Iterator<Item = Vec<Laid>> {
    let is_chosen = files.iter().any(|file| matches!(file, Whereabouts::Chosen(_)));
    let regions: u64 = files.iter().map(Whereabouts::drawn_regions).sum();
    let drawings = (DRAWN_REGIONS / regions.max(1)).clamp(*DRAWINGS.start(), *DRAWINGS.end());
    let count = if is_chosen { drawings } else { 1 };
    (0..count).map(move |drawing| files.iter().map(|file| file.drawn(drawing)).collect())
}

/// The mean time of drawings of the same requests, of which there is at least one. Its spread has what each may be wrong
/// by and how they differ.
#[must_use]
pub fn mean(drawings: &[Throughput]) -> Throughput {
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

#[cfg(test)]
mod tests {
    use super::super::{file_systems, lookup};
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    const REGION: ByteCount = ByteCount(16 << 20);

    /// The example's site with another default.
    fn site(fs: &str, default: &str) -> Site {
        let mut table: toml::Table = toml::from_str(lookup(fs).unwrap().example).unwrap();
        let mut of_default: toml::Table = toml::from_str(default).unwrap();
        if let Some(toml::Value::Table(known)) = table.remove("default") {
            known.into_iter().for_each(|(key, value)| _ = of_default.entry(key).or_insert(value));
        }
        table.insert("default".to_owned(), of_default.into());
        Site::parse(&table.to_string(), Path::new("site.toml"), &file_systems()).unwrap()
    }

    fn targets(laid: &[Laid]) -> BTreeSet<usize> {
        let layouts = laid.iter().flat_map(|laid| &laid.placement.layouts);
        layouts.flat_map(|layout| layout.stripes()).map(|stripe| usize::from(stripe.server.0)).collect()
    }

    #[test]
    fn a_default_of_one_stripe_lies_on_all_targets_of_its_pool() {
        for fs in ["cephfs", "moosefs"] {
            let site = site(fs, "stripe_count = 1");
            let (pool, turns, _) = site.default_layout();
            assert!(pool.len() > 1 && turns == 1, "{fs}: {pool:?}");
            let file = [Whereabouts::by_default(&site, 0, REGION, 32 << 30)];
            let drawn: Vec<Vec<Laid>> = drawings(&file).collect();
            assert!(DRAWINGS.contains(&(drawn.len() as u64)));
            assert!(drawn[0] != drawn[1] && drawn == drawings(&file).collect::<Vec<_>>());
            for laid in drawn {
                assert_eq!(targets(&laid), pool.iter().copied().collect(), "{fs}");
            }
        }
    }

    #[test]
    fn objects_that_take_turns_are_as_many_as_the_default_says() {
        let site = site("cephfs", "stripe_count = 2\nstripe_size = \"1MiB\"");
        let (pool, turns, _) = site.default_layout();
        assert!(pool.len() > 2 && turns == 2, "{pool:?}");
        let file = Whereabouts::by_default(&site, 0, REGION, 1 << 30);
        let Whereabouts::Chosen(chosen) = file else { panic!("{file:?}") };
        assert_eq!((chosen.objects.turns, chosen.objects.unit_bytes, chosen.targets), (2, 1 << 20, pool));
    }

    #[test]
    fn where_the_layout_says_the_targets_nothing_is_drawn() {
        let site = site("lustre", "stripe_count = 2");
        let files = [0, 1].map(|number| Whereabouts::by_default(&site, number, REGION, 1 << 30));
        let drawn: Vec<Vec<Laid>> = drawings(&files).collect();
        let expected = [0, 1].map(|number| NativeLayout::site_default(&site, number).placement(REGION, 1 << 30).into());
        assert_eq!(drawn, [expected]);
    }
}
