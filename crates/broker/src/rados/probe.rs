//! Whether pools can be servers: looked at before anything is made of them, so that what is in the way has a name and nothing is left behind.

use super::error::RadosError;
use super::store::connect;
use super::survey::{PoolFacts, Survey, probe_blocklist};
use super::{Connection, space_of};
use std::sync::Arc;
use stripewise_layout::figures::bytes;
use stripewise_layout::{ByteCount, ServerUrl};
use stripewise_store::server::ServerError;
use stripewise_store::server::rados::RadosUrl;

/// Whether these pools, by the servers' names, can be servers with regions of this size.
///
/// # Errors
/// [`ServerError::Unusable`] for the first that cannot: its Ceph cannot be reached, the user may not blocklist clients, or the pool is missing, erasure-coded,
/// on OSDs that do not serve it, or too small.
pub(crate) fn probe(servers: &[(&str, &ServerUrl)], region: ByteCount) -> Result<(), ServerError> {
    let mut surveyed: Vec<(Arc<Connection>, Survey)> = Vec::new();
    for (name, url) in servers {
        let unusable = |what: String| ServerError::Unusable { server: (*name).to_owned(), what };
        let url = RadosUrl::parse(url).map_err(unusable)?;
        let connection = connect(name, &url)?;
        let known = surveyed.iter().position(|(other, _)| Arc::ptr_eq(other, &connection));
        let number = match known {
            Some(number) => number,
            None => {
                let survey = Survey::read(&connection).map_err(|error| unusable(error.to_string()))?;
                probe_blocklist(&connection).map_err(|error| unusable(error.to_string()))?;
                surveyed.push((Arc::clone(&connection), survey));
                surveyed.len() - 1
            }
        };
        check(&connection, &surveyed[number].1, &url.pool, region).map_err(unusable)?;
    }
    Ok(())
}

fn check(connection: &Connection, survey: &Survey, pool: &str, region: ByteCount) -> Result<(), String> {
    let facts = survey.pool(pool).ok_or_else(|| RadosError::NoPool { pool: pool.to_owned() }.to_string())?;
    if !facts.is_replicated {
        return Err(RadosError::ErasureCoded { pool: pool.to_owned() }.to_string());
    }
    check_osds(connection, survey, facts)?;
    let (free, total) = space_of(connection, pool).map_err(|error| error.to_string())?;
    if free >= region.0 {
        return Ok(());
    }
    let ([free, total, region], ceph) = ([free, total, region.0].map(bytes), connection.ceph());
    let remedy = match facts.quota_bytes {
        Some(quota) => {
            format!("raise its quota of {} ({ceph} osd pool set-quota {pool} max_bytes BYTES)", bytes(quota))
        }
        None => "free space in it".to_owned(),
    };
    Err(format!(
        "pool {pool} can take {free} more of {total}, less than one region of {region}; {remedy}, or choose a smaller --region"
    ))
}

/// That the pool's rule reaches OSDs, and enough of them serve it.
fn check_osds(connection: &Connection, survey: &Survey, pool: &PoolFacts) -> Result<(), String> {
    let PoolFacts { name, replicas, .. } = pool;
    let osds: Vec<_> = survey.osds_of(pool).collect();
    if osds.is_empty() {
        let ceph = connection.ceph();
        return Err(format!(
            "the CRUSH rule of pool {name} reaches no OSD, so the pool keeps nothing; give it another ({ceph} osd pool set {name} crush_rule RULE)"
        ));
    }
    let faults: Vec<String> = osds.iter().filter_map(|osd| osd.fault()).collect();
    let serving = (osds.len() - faults.len()) as u64;
    // One copy is lost with any of them; of more, others have the rest. An OSD that is full stops writes to all that it shares.
    let is_served = faults.is_empty() || (*replicas > 1 && serving >= *replicas && !osds.iter().any(|osd| osd.is_full));
    if is_served {
        return Ok(());
    }
    Err(format!("pool {name} is not served: {}", faults.join("; ")))
}
