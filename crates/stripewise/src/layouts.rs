//! Placements that are made here, for files that no plan speaks of, and layouts as people write them.

use stripewise_layout::{ByteCount, Cluster, Layout, LayoutError, ParseSizeError, Placement, ServerClass, ServerId};
use thiserror::Error;

/// Why there is no such placement.
#[derive(Debug, Error)]
pub enum PlacementError {
    /// A class without servers.
    #[error("the cluster has no {} servers", class.map_or_else(String::new, |class| class.to_string()))]
    NoServers {
        /// The class asked for; `None`: any.
        class: Option<ServerClass>,
    },
    /// Stripes that make no layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// A text that is no layout of the cluster's.
#[derive(Debug, Error)]
#[error(
    "`{text}` is no layout; write it as `stripewise stat` shows it: \"<64KiB,256KiB>\" or \"hdd0 64KiB, ssd0..ssd3 128KiB\""
)]
pub struct ParseLayoutError {
    text: String,
    source: StripeError,
}

/// What is wrong with it.
#[derive(Debug, Error)]
pub enum StripeError {
    /// A pair begins that does not end.
    #[error("a pair is written <h,s>")]
    Pair,
    /// A class without servers.
    #[error("the cluster has no {class} servers")]
    NoServers {
        /// The class with a stripe above 0.
        class: ServerClass,
    },
    /// One word where two belong.
    #[error("`{part}` is not a server and a stripe")]
    Part {
        /// What stands between commas.
        part: String,
    },
    /// The last server stands before the first.
    #[error("`{names}` runs backwards")]
    Backwards {
        /// The range as it stands.
        names: String,
    },
    /// A stripe of 0 bytes.
    #[error("`{part}`: leave out a server that takes no part")]
    Nothing {
        /// What stands between commas.
        part: String,
    },
    /// A stripe that is no size.
    #[error(transparent)]
    Size(#[from] ParseSizeError),
    /// A stripe that no server can have.
    #[error("{size}: a stripe is a multiple of 512 bytes, below 4GiB")]
    Stripe {
        /// The size as it was read.
        size: ByteCount,
    },
    /// A name of no server.
    #[error(transparent)]
    Server(#[from] UnknownServer),
    /// Stripes that make no layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// A name that no server of the cluster has.
#[derive(Debug, Error)]
#[error("no server `{name}` in the cluster; its servers are {}", known.join(", "))]
pub struct UnknownServer {
    name: String,
    known: Vec<String>,
}

/// The default stripe of file systems, and of DEF in the papers.
const DEFAULT_STRIPE_BYTES: u32 = 64 << 10;

/// 64 KiB over all servers.
///
/// # Errors
///
/// [`PlacementError::NoServers`] of an empty cluster, [`PlacementError::Layout`] of one too large
/// for a layout.
pub fn default_placement(cluster: &Cluster) -> Result<Placement, PlacementError> {
    placement(cluster, None, DEFAULT_STRIPE_BYTES)
}

/// Stripes of `stripe_bytes` over all servers, or those of one class; what does not fit goes to HServers.
///
/// # Errors
///
/// [`PlacementError::NoServers`] if the class has none, [`PlacementError::Layout`] if
/// `stripe_bytes` is 0 or the servers are too many.
pub fn placement(
    cluster: &Cluster,
    class: Option<ServerClass>,
    stripe_bytes: u32,
) -> Result<Placement, PlacementError> {
    let ids = match class {
        Some(class) => cluster.ids_of_class(class),
        None => (0..cluster.servers.len()).map(|number| ServerId(number as u16)).collect(),
    };
    if ids.is_empty() {
        return Err(PlacementError::NoServers { class });
    }
    let over = |ids: &[ServerId]| Layout::new(ids.iter().map(|id| (*id, stripe_bytes)));
    let layout = over(&ids)?;
    let hdds = cluster.ids_of_class(ServerClass::Hdd);
    let fallback = if hdds.is_empty() { layout.clone() } else { over(&hdds)? };
    Ok(Placement::uniform(cluster.region_size, layout, fallback))
}

/// A layout as `plan` and `stat` print it: `<64KiB,256KiB>` for a stripe on every HDD and one on every SSD server (0 where a class takes no part), or
/// servers with their stripes, `hdd0 64KiB, ssd0..ssd3 128KiB`.
///
/// # Errors
/// When the text is neither, or names no server of the cluster.
pub fn parse(text: &str, cluster: &Cluster) -> Result<Layout, ParseLayoutError> {
    let stripes = match text.trim().strip_prefix('<') {
        Some(pair) => pair_stripes(pair, cluster),
        None => named_stripes(text, cluster),
    };
    let layout = stripes.and_then(|stripes| Ok(Layout::new(stripes)?));
    layout.map_err(|source| ParseLayoutError { text: text.to_owned(), source })
}

type Stripes = Vec<(ServerId, u32)>;

fn pair_stripes(text: &str, cluster: &Cluster) -> Result<Stripes, StripeError> {
    let sizes = text.trim_end().strip_suffix('>').and_then(|pair| pair.split_once(','));
    let (h, s) = sizes.ok_or(StripeError::Pair)?;
    let mut stripes = Stripes::new();
    for (class, size) in [(ServerClass::Hdd, h), (ServerClass::Ssd, s)] {
        let (size, ids) = (stripe(size)?, cluster.ids_of_class(class));
        if size > 0 && ids.is_empty() {
            return Err(StripeError::NoServers { class });
        }
        stripes.extend(ids.into_iter().map(|id| (id, size)));
    }
    Ok(stripes)
}

fn named_stripes(text: &str, cluster: &Cluster) -> Result<Stripes, StripeError> {
    let mut stripes = Stripes::new();
    for part in text.split(',').map(str::trim) {
        let (names, size) = part.rsplit_once(' ').ok_or_else(|| StripeError::Part { part: part.to_owned() })?;
        let (first, last) = names.trim().split_once("..").unwrap_or((names.trim(), names.trim()));
        let (first, last) = (server(first, cluster)?, server(last, cluster)?);
        if first > last {
            return Err(StripeError::Backwards { names: names.to_owned() });
        }
        let size = stripe(size)?;
        if size == 0 {
            return Err(StripeError::Nothing { part: part.to_owned() });
        }
        stripes.extend((first.0..=last.0).map(|id| (ServerId(id), size)));
    }
    Ok(stripes)
}

fn stripe(text: &str) -> Result<u32, StripeError> {
    let size: ByteCount = text.trim().parse()?;
    match u32::try_from(size.0) {
        Ok(bytes) if bytes.is_multiple_of(512) => Ok(bytes),
        _ => Err(StripeError::Stripe { size }),
    }
}

/// A text that is no class of servers.
#[derive(Debug, Error)]
#[error("unknown class `{text}`; known: hdd, ssd")]
pub struct UnknownClass {
    text: String,
}

/// The class of servers that is written `hdd` or `ssd`.
///
/// # Errors
///
/// [`UnknownClass`].
pub fn class(text: &str) -> Result<ServerClass, UnknownClass> {
    match text {
        "hdd" => Ok(ServerClass::Hdd),
        "ssd" => Ok(ServerClass::Ssd),
        other => Err(UnknownClass { text: other.to_owned() }),
    }
}

/// The number of the server of this name.
///
/// # Errors
///
/// [`UnknownServer`] with the names that there are.
pub fn server(name: &str, cluster: &Cluster) -> Result<ServerId, UnknownServer> {
    let position = cluster.servers.iter().position(|server| server.name == name);
    position.map(|number| ServerId(number as u16)).ok_or_else(|| {
        let known = cluster.servers.iter().map(|server| server.name.clone()).collect();
        UnknownServer { name: name.to_owned(), known }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use stripewise_planner::layout_text;

    fn cluster_of(classes: &[(&str, &str)]) -> Cluster {
        let mut text = "version = 1\nid = \"c\"\nstate = \"s\"\n".to_owned();
        for (name, class) in classes {
            text += &format!("[[server]]\nname = \"{name}\"\nclass = \"{class}\"\nurl = \"file:///{name}\"\n");
        }
        Cluster::parse(&text, Path::new("/x/cluster.toml")).unwrap()
    }

    #[test]
    fn layouts_are_read_as_they_are_printed() {
        let cluster = cluster_of(&[("h0", "hdd"), ("h1", "hdd"), ("s0", "ssd"), ("s1", "ssd"), ("s2", "ssd")]);
        let layout = |pairs: &[(u16, u32)]| Layout::new(pairs.iter().map(|(id, size)| (ServerId(*id), *size))).unwrap();
        for pairs in [
            &[(0, 65536), (1, 65536), (2, 4096), (3, 4096), (4, 4096)][..],
            &[(2, 65536), (3, 65536), (4, 65536)],
            &[(0, 512), (1, 512)],
            &[(0, 65536), (2, 131_072), (3, 131_072)],
            &[(4, 1 << 20), (0, 512)],
            &[(1, 66048)],
        ] {
            let layout = layout(pairs);
            let text = layout_text(&layout, &cluster);
            assert_eq!(parse(&text, &cluster).unwrap(), layout, "{text}");
        }
        assert_eq!(parse("< 64KiB, 0 >", &cluster).unwrap(), layout(&[(0, 65536), (1, 65536)]));
        for (text, expected) in [
            ("<64KiB>", "<h,s>"),
            ("<0,0>", "at least one server"),
            ("h0", "is not a server and a stripe"),
            ("h9 64KiB", "no server `h9` in the cluster; its servers are h0, h1, s0, s1, s2"),
            ("s1..s0 64KiB", "runs backwards"),
            ("h0 100", "multiple of 512"),
            ("h0 0", "leave out"),
            ("h0 8GiB", "below 4GiB"),
            ("h0 4KiB, h0..h1 4KiB", "names server 0 twice"),
            ("h0 much", "is not a size"),
        ] {
            let said = crate::messages::chain(&parse(text, &cluster).unwrap_err());
            assert!(said.contains(expected) && said.contains("as `stripewise stat` shows it"), "{text}: {said}");
        }
        let disks = cluster_of(&[("h0", "hdd")]);
        assert!(crate::messages::chain(&parse("<0,4KiB>", &disks).unwrap_err()).contains("no ssd servers"));
    }

    #[test]
    fn the_default_spreads_over_all_and_falls_back_to_disks() {
        let cluster = cluster_of(&[("h", "hdd"), ("s", "ssd")]);
        let placement = default_placement(&cluster).unwrap();
        assert_eq!(placement.check(2), Ok(()));
        assert_eq!(placement.layouts[0].stripes().len(), 2);
        assert_eq!(placement.fallback_layout().stripes(), [stripewise_layout::Stripe::new(ServerId(0), 65536)]);
        let only = super::placement(&cluster, Some(ServerClass::Ssd), 4096).unwrap();
        assert_eq!(only.layouts[0].stripes(), [stripewise_layout::Stripe::new(ServerId(1), 4096)]);
    }
}
