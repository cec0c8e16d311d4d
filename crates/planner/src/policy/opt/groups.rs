//! Regions that are accessed alike as one item each: a program of few items whose prices are nearly those of the whole.
//!
//! The search for an aim's prices costs a response of all items for each of some tens of queries. Hundreds of groups answer nearly as
//! thousands of regions do, so the queries are made of them, and the regions answer only those that the optimum is mixed from (`dual.rs`).

use super::program::Item;
use std::collections::BTreeMap;
use stripewise_layout::Direction;
use stripewise_trace::AccessClass;

/// Groups of accessed regions, about; with fewer than twice as many regions, grouping saves little.
const GROUPS: usize = 256;

/// What regions of a group have in common besides their heat: file, size of the region, the period of most requests, the octave of the mean
/// request, and whether more is written than read.
type Likeness = (usize, u64, usize, u32, bool);

/// Groups instead of the items of one window; `None` where there are few items, or one has a place already.
pub(crate) fn grouped(items: &[Item], classes: &[AccessClass]) -> Option<Vec<Item>> {
    let open = |item: &Item| item.counts.len() == 1 && item.before.is_none();
    if items.len() < 2 * GROUPS || !items.iter().all(open) {
        return None;
    }
    let mut alike: BTreeMap<Likeness, Vec<(f64, usize)>> = BTreeMap::new();
    let mut groups: Vec<Item> = Vec::new();
    let (mut count, mut heat) = (0usize, 0.0);
    for (number, item) in items.iter().enumerate() {
        if !item.is_accessed() {
            groups.push(item.clone());
            continue;
        }
        let (likeness, requests) = likeness(item, classes);
        (count, heat) = (count + 1, heat + requests);
        alike.entry(likeness).or_default().push((requests, number));
    }
    for mut members in alike.into_values() {
        members.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        // Each group has its part of the requests and of the regions: few hot ones, or many cold ones.
        let mut of_group: Vec<usize> = Vec::new();
        let mut weight = 0.0;
        for (requests, number) in members {
            of_group.push(number);
            weight += GROUPS as f64 * 0.5 * (requests / heat + 1.0 / count as f64);
            if weight >= 1.0 {
                groups.push(together(items, &of_group));
                (of_group, weight) = (Vec::new(), 0.0);
            }
        }
        if !of_group.is_empty() {
            groups.push(together(items, &of_group));
        }
    }
    Some(groups)
}

fn likeness(item: &Item, classes: &[AccessClass]) -> (Likeness, f64) {
    let (mut requests, mut bytes, mut written) = (0.0, 0.0, 0.0);
    for (class, count) in &item.counts[0] {
        let (class, count) = (&classes[usize::from(*class)], *count);
        requests += count;
        bytes += count * class.request_bytes as f64;
        if class.direction() == Direction::Write {
            written += count * class.request_bytes as f64;
        }
    }
    let mut period = 0;
    for (number, share) in item.shares.iter().enumerate() {
        if *share > item.shares[period] {
            period = number;
        }
    }
    let octave = (bytes / f64::max(requests, 1.0)).max(1.0).log2().round() as u32;
    ((item.file, item.region_bytes, period, octave, 2.0 * written > bytes), requests)
}

/// One item with the requests of several.
fn together(items: &[Item], numbers: &[usize]) -> Item {
    let mut counts: BTreeMap<u16, f64> = BTreeMap::new();
    let mut item = items[numbers[0]].clone();
    item.regions.clear();
    let mut shares = vec![0.0; item.shares.len()];
    let mut requests = 0.0;
    for number in numbers {
        let one = &items[*number];
        item.regions.extend(&one.regions);
        let mut own = 0.0;
        for (class, count) in &one.counts[0] {
            *counts.entry(*class).or_insert(0.0) += count;
            own += count;
        }
        requests += own;
        shares.iter_mut().zip(&one.shares).for_each(|(sum, share)| *sum += own * share);
    }
    if requests > 0.0 {
        item.shares = shares.into_iter().map(|share| share / requests).collect();
    }
    item.counts = vec![counts.into_iter().collect()];
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::Order;

    fn item(region: u32, counts: Vec<(u16, u64)>) -> Item {
        Item {
            file: 0,
            regions: vec![region],
            region_bytes: 1 << 20,
            counts: vec![counts.into_iter().map(|(class, count)| (class, count as f64)).collect()],
            shares: vec![0.25, 0.75],
            same_region: vec![0.0],
            before: None,
        }
    }

    fn classes() -> Vec<AccessClass> {
        let class = |direction: Direction, request_bytes| AccessClass {
            kind: direction.into(),
            request_bytes,
            order: Order::Random,
        };
        vec![class(Direction::Read, 1 << 16), class(Direction::Write, 1 << 18)]
    }

    #[test]
    fn groups_hold_every_region_and_every_request_once() {
        let items: Vec<Item> = (0..3000u32)
            .map(|region| match region % 5 {
                4 => item(region, Vec::new()),
                kind => item(
                    region,
                    vec![(u16::from(kind > 1), u64::from(9000 / (region + 1)) + 1), (1 - u16::from(kind > 1), 1)],
                ),
            })
            .collect();
        let groups = grouped(&items, &classes()).expect("so many regions are grouped");
        let mut regions: Vec<u32> = groups.iter().flat_map(|group| group.regions.clone()).collect();
        regions.sort_unstable();
        assert_eq!(regions, (0..3000).collect::<Vec<u32>>());
        let sum = |items: &[Item], class: u16| -> f64 {
            items.iter().flat_map(|item| &item.counts[0]).filter(|(own, _)| *own == class).map(|(_, count)| count).sum()
        };
        assert_eq!([sum(&groups, 0), sum(&groups, 1)], [sum(&items, 0), sum(&items, 1)]);
        let accessed = groups.iter().filter(|group| group.is_accessed()).count();
        assert!((GROUPS / 2..2 * GROUPS).contains(&accessed), "{accessed} groups");
        assert_eq!(groups[groups.len() - 1].shares, [0.25, 0.75]);
    }

    #[test]
    fn few_regions_and_regions_with_a_place_stay_alone() {
        let few: Vec<Item> = (0..10).map(|region| item(region, vec![(0, 5)])).collect();
        assert_eq!(grouped(&few, &classes()), None);
        let mut many: Vec<Item> = (0..3000).map(|region| item(region, vec![(0, 5)])).collect();
        many[7].before = Some(0);
        assert_eq!(grouped(&many, &classes()), None);
    }
}
