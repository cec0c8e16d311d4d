//! What a plan's replicas become where a file can have further copies: mirrors, which are copies of the whole file.
//!
//! A region has at most one copy in each mirror. Regions without a replica lie in a mirror as they do in the first copy, since a mirror has no holes.

use crate::policy::Replica;
use stripewise_layout::{Layout, Placement, RegionIndex, ServerId};

/// The placements of at most so many mirrors.
pub(super) fn wanted(placement: &Placement, replicas: &[Replica], most: usize) -> Vec<Placement> {
    let regions = placement.planned_regions();
    let mut mirrors: Vec<Vec<Option<&Layout>>> = Vec::new();
    for replica in replicas {
        for region in replica.first.0..replica.first.0.saturating_add(replica.regions) {
            let at = region as usize;
            if u64::from(region) >= regions {
                break;
            }
            let free = mirrors.iter().position(|mirror| mirror[at].is_none()).unwrap_or(mirrors.len());
            if free == mirrors.len() && free < most {
                mirrors.push(vec![None; regions as usize]);
            }
            if let Some(mirror) = mirrors.get_mut(free) {
                mirror[at] = Some(&replica.layout);
            }
        }
    }
    let placed = |mirror: Vec<Option<&Layout>>| {
        let as_first = |at: usize| placement.layout_of(RegionIndex(at as u32));
        let layouts = mirror.iter().enumerate().map(|(at, layout)| layout.unwrap_or_else(|| as_first(at)).clone());
        let beyond = placement.layouts[placement.beyond as usize].clone();
        Placement::from_regions(placement.region_size, layouts, beyond.clone(), beyond)
    };
    mirrors.into_iter().map(placed).collect()
}

/// Over the site's targets instead of the plan's servers.
pub(super) fn renumbered(replicas: &[Replica], number: &dyn Fn(ServerId) -> ServerId) -> Vec<Replica> {
    let of = |layout: &Layout| {
        let stripes = layout.stripes().iter().map(|stripe| (number(stripe.server), stripe.size_bytes));
        Layout::new(stripes).expect("as many servers as before")
    };
    replicas.iter().map(|replica| Replica { layout: of(&replica.layout), ..replica.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::ByteCount;

    fn on(server: u16) -> Layout {
        Layout::new([(ServerId(server), 65536)]).unwrap()
    }

    fn replica(first: u32, regions: u32, server: u16) -> Replica {
        Replica { first: RegionIndex(first), regions, layout: on(server) }
    }

    fn servers(placement: &Placement) -> Vec<u16> {
        let first = |region| placement.layout_of(RegionIndex(region)).stripes()[0].server.0;
        (0..placement.planned_regions() as u32).map(first).collect()
    }

    #[test]
    fn each_region_has_its_replicas_in_mirrors_and_lies_as_in_the_first_copy_elsewhere() {
        let placement = Placement::from_regions(ByteCount(1 << 20), [on(0), on(0), on(1), on(1)], on(9), on(9));
        let of =
            |replicas: &[Replica], most| wanted(&placement, replicas, most).iter().map(servers).collect::<Vec<_>>();
        assert_eq!(of(&[], 15), Vec::<Vec<u16>>::new());
        assert_eq!(of(&[replica(1, 2, 5)], 15), [[0, 5, 5, 1]]);
        let three = [replica(1, 2, 5), replica(0, 2, 6), replica(3, 7, 7)];
        assert_eq!(of(&three, 15), [[6, 5, 5, 7], [0, 6, 1, 1]]);
        assert_eq!(of(&three, 1), [[6, 5, 5, 7]], "what has no room in the mirrors is left out");
    }
}
