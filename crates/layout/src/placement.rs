//! The layouts of one file's regions: what a plan says of a file, and what the store places by.

use crate::{ByteCount, Layout, RegionIndex};
use serde::{Deserialize, Serialize};

/// Layouts of every region of a file, run-length coded, and of the regions beyond the planned end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// Bytes of a region of this file, a multiple of 4 KiB; the cluster's unless another size was asked for.
    pub region_size: ByteCount,
    /// The distinct layouts; runs, `beyond` and `fallback` give positions in this list.
    pub layouts: Vec<Layout>,
    /// From region 0 on.
    pub runs: Vec<Run>,
    /// Layout of regions past the last run.
    pub beyond: u32,
    /// Layout of a region whose own layout no longer fits its servers: HServers only, where there are any.
    pub fallback: u32,
}

/// `regions` consecutive regions with one layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// How many regions, at least 1.
    pub regions: u32,
    /// Position in [`Placement::layouts`].
    pub layout: u32,
}

impl Placement {
    /// Every region with one layout.
    #[must_use]
    pub fn uniform(region_size: ByteCount, layout: Layout, fallback: Layout) -> Self {
        let same = layout == fallback;
        let mut layouts = vec![layout];
        if !same {
            layouts.push(fallback);
        }
        Self { region_size, layouts, runs: Vec::new(), beyond: 0, fallback: u32::from(!same) }
    }

    /// From one layout for each region, in order.
    #[must_use]
    pub fn from_regions(
        region_size: ByteCount,
        regions: impl IntoIterator<Item = Layout>,
        beyond: Layout,
        fallback: Layout,
    ) -> Self {
        let mut layouts: Vec<Layout> = Vec::new();
        let mut numbers = std::collections::HashMap::new();
        let mut number_of = |layout: Layout| {
            *numbers.entry(layout).or_insert_with_key(|layout| {
                layouts.push(layout.clone());
                (layouts.len() - 1) as u32
            })
        };
        let mut runs: Vec<Run> = Vec::new();
        for layout in regions {
            let number = number_of(layout);
            match runs.last_mut() {
                Some(run) if run.layout == number => run.regions += 1,
                _ => runs.push(Run { regions: 1, layout: number }),
            }
        }
        let (beyond, fallback) = (number_of(beyond), number_of(fallback));
        Self { region_size, layouts, runs, beyond, fallback }
    }

    /// The layout planned for `region`; that of `beyond` past the planned end.
    #[must_use]
    pub fn layout_of(&self, region: RegionIndex) -> &Layout {
        let mut first = 0;
        for run in &self.runs {
            first += u64::from(run.regions);
            if u64::from(region.0) < first {
                return &self.layouts[run.layout as usize];
            }
        }
        &self.layouts[self.beyond as usize]
    }

    /// The layout of regions whose own one no longer fits its servers.
    #[must_use]
    pub fn fallback_layout(&self) -> &Layout {
        &self.layouts[self.fallback as usize]
    }

    /// Regions that the runs name.
    #[must_use]
    pub fn planned_regions(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.regions)).sum()
    }

    /// What is wrong with the numbers, in words; a placement read from a file must pass before it is used.
    ///
    /// # Errors
    ///
    /// The first number that is out of range, in words: a region size that is no multiple of 4 KiB,
    /// a layout or server that does not exist (`servers` is the cluster's count), an empty run, or
    /// more than `u32::MAX` regions.
    pub fn check(&self, servers: usize) -> Result<(), String> {
        if self.region_size.0 < 4096 || !self.region_size.0.is_multiple_of(4096) {
            return Err(format!("region size {} is not a multiple of 4KiB", self.region_size));
        }
        let known = self.layouts.len() as u32;
        let named = self.runs.iter().map(|run| run.layout).chain([self.beyond, self.fallback]);
        if let Some(missing) = named.into_iter().find(|number| *number >= known) {
            return Err(format!("layout {missing} is named but only {known} are listed"));
        }
        if self.runs.iter().any(|run| run.regions == 0) {
            return Err("a run of 0 regions".to_owned());
        }
        // The number behind the last region is a region number too.
        if self.planned_regions() > u64::from(u32::MAX) {
            return Err(format!("{} regions are planned; a file has at most {}", self.planned_regions(), u32::MAX));
        }
        let stripes = self.layouts.iter().flat_map(Layout::stripes);
        if let Some(stripe) = stripes.into_iter().find(|stripe| usize::from(stripe.server.0) >= servers) {
            return Err(format!("a layout names server {}, but the cluster has {servers}", stripe.server));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerId;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_give_back_the_regions_they_were_made_from(sizes in proptest::collection::vec(1u32..4, 0..40)) {
            let layout = |size| Layout::new([(ServerId(0), size * 4096)]).unwrap();
            let placement =
                Placement::from_regions(ByteCount(1 << 20), sizes.iter().map(|s| layout(*s)), layout(7), layout(8));
            for (region, size) in sizes.iter().enumerate() {
                prop_assert_eq!(placement.layout_of(RegionIndex(region as u32)), &layout(*size));
            }
            prop_assert_eq!(placement.layout_of(RegionIndex(sizes.len() as u32)), &layout(7));
            prop_assert_eq!(placement.fallback_layout(), &layout(8));
            prop_assert_eq!(placement.check(1), Ok(()));
            prop_assert!(placement.check(0).is_err());
        }
    }

    #[test]
    fn more_regions_than_have_numbers_and_empty_runs_are_refused() {
        let layout = Layout::new([(ServerId(0), 4096)]).unwrap();
        let run = |regions| Run { regions, layout: 0 };
        let placement = |runs| Placement {
            region_size: ByteCount(4096),
            layouts: vec![layout.clone()],
            runs,
            beyond: 0,
            fallback: 0,
        };
        assert_eq!(placement(vec![run(u32::MAX)]).check(1), Ok(()));
        let refused = placement(vec![run(u32::MAX), run(1)]).check(1).unwrap_err();
        assert!(refused.contains("4294967296 regions are planned"), "{refused}");
        assert_eq!(placement(vec![run(1), run(0)]).check(1), Err("a run of 0 regions".to_owned()));
    }
}
