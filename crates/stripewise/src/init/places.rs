//! That no server of a new cluster lies in the directory of another, or in the state directory, by whatever path it is named.

use super::{InitError, Result};
use crate::paths::OnPath as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use stripewise_layout::Server;

/// A directory by device and inode; of one that is still to be made, those of the nearest above it and the names from there on.
type Spot = ((u64, u64), PathBuf);

/// A directory, and those above it. Links on the way have been followed.
struct Way(Vec<Spot>);

impl Way {
    fn to(directory: &Path) -> Result<Self> {
        let found = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        let missing = directory.strip_prefix(found).unwrap_or(Path::new(""));
        let real = found.canonicalize().on("look at", found)?;
        let identity = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).on("look at", path);
        let nearest = identity(&real)?;
        let mut way: Vec<Spot> = missing.ancestors().map(|names| (nearest, names.to_owned())).collect();
        for above in real.ancestors().skip(1) {
            way.push((identity(above)?, PathBuf::new()));
        }
        Ok(Self(way))
    }

    fn is(&self, other: &Self) -> bool {
        self.0.first() == other.0.first()
    }

    fn leads_through(&self, other: &Self) -> bool {
        other.0.first().is_some_and(|spot| self.0.contains(spot))
    }
}

/// Refuses directories of servers that are one, or lie in each other or in the state directory.
pub(super) fn check(servers: &[&Server], state: &Path) -> Result<()> {
    let ways = servers.iter().map(|server| Way::to(server.url.directory())).collect::<Result<Vec<_>>>()?;
    let to_state = Way::to(state)?;
    let inside = |server: &Server, outer: String, outside: &Path| {
        let directory = server.url.directory().to_owned();
        Err(InitError::Inside { server: server.name.clone(), directory, outer, outside: outside.to_owned() })
    };
    for (number, (server, way)) in servers.iter().zip(&ways).enumerate() {
        for (other, to_other) in servers.iter().zip(&ways).take(number) {
            let of = |outer: &Server| format!("the directory of server `{}`", outer.name);
            if way.is(to_other) {
                return Err(InitError::OneDirectory {
                    first: other.name.clone(),
                    second: server.name.clone(),
                    directory: other.url.directory().to_owned(),
                });
            }
            if way.leads_through(to_other) {
                return inside(server, of(other), other.url.directory());
            }
            if to_other.leads_through(way) {
                return inside(other, of(server), server.url.directory());
            }
        }
        if way.leads_through(&to_state) {
            return inside(server, "the state directory".to_owned(), state);
        }
    }
    Ok(())
}
