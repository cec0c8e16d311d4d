//! Placements that the command makes itself, for files that no plan speaks of.

use anyhow::{Result, bail};
use stripewise_layout::{Cluster, Layout, Placement, ServerClass, ServerId};

/// The default stripe of file systems, and of DEF in the papers.
const DEFAULT_STRIPE_BYTES: u32 = 64 << 10;

/// 64 KiB over all servers.
pub(crate) fn default_placement(cluster: &Cluster) -> Result<Placement> {
    placement(cluster, None, DEFAULT_STRIPE_BYTES)
}

/// Stripes of `stripe_bytes` over all servers, or those of one class; what does not fit goes to HServers.
pub(crate) fn placement(cluster: &Cluster, class: Option<ServerClass>, stripe_bytes: u32) -> Result<Placement> {
    let ids = match class {
        Some(class) => cluster.ids_of_class(class),
        None => (0..cluster.servers.len()).map(|number| ServerId(number as u16)).collect(),
    };
    if ids.is_empty() {
        bail!("the cluster has no {} servers", class.map_or_else(String::new, |class| class.to_string()));
    }
    let over = |ids: &[ServerId]| Layout::new(ids.iter().map(|id| (*id, stripe_bytes)));
    let layout = over(&ids)?;
    let hdds = cluster.ids_of_class(ServerClass::Hdd);
    let fallback = if hdds.is_empty() { layout.clone() } else { over(&hdds)? };
    Ok(Placement::uniform(cluster.region_size, layout, fallback))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_default_spreads_over_all_and_falls_back_to_disks() {
        let text = "version = 1\nid = \"c\"\nstate = \"s\"\n[[server]]\nname = \"h\"\nclass = \"hdd\"\nurl = \"file:///h\"\n\
                    [[server]]\nname = \"s\"\nclass = \"ssd\"\nurl = \"file:///s\"\n";
        let cluster = Cluster::parse(text, Path::new("/x/cluster.toml")).unwrap();
        let placement = default_placement(&cluster).unwrap();
        assert_eq!(placement.check(2), Ok(()));
        assert_eq!(placement.layouts[0].stripes().len(), 2);
        assert_eq!(placement.fallback_layout().stripes(), [stripewise_layout::Stripe::new(ServerId(0), 65536)]);
        let only = super::placement(&cluster, Some(ServerClass::Ssd), 4096).unwrap();
        assert_eq!(only.layouts[0].stripes(), [stripewise_layout::Stripe::new(ServerId(1), 4096)]);
    }
}
