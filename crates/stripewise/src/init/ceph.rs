//! Servers that are pools of a Ceph, one for each OSD, as they are found there.
//!
//! A pool is an OSD's if its rule reaches that OSD and no other. Where an OSD has none, [`find`] says by which commands it gets one, or runs
//! them. Whatever stands in the way of a server is found before anything is written, all of it at once.

use super::InitError;
use crate::paths::absolute;
use std::path::PathBuf;
use stripewise_broker::rados::{
    CephCommand, ConnectOptions, Connection, Osd, PoolFacts, RadosError, Survey, free_bytes, probe_blocklist,
};
use stripewise_layout::figures::bytes;
use stripewise_layout::{ByteCount, Server, ServerClass};
use stripewise_store::server::rados::RadosUrl;
use thiserror::Error;

/// Which Ceph, and how its OSDs become servers.
#[derive(Clone, Default, Debug)]
pub struct CephOptions {
    /// Path of `ceph.conf`; `None`: Ceph's usual places.
    pub conf: Option<PathBuf>,
    /// As in `client.NAME`; `None`: `admin`.
    pub user: Option<String>,
    /// Make the pools that are missing.
    pub create_pools: bool,
    /// The class of OSDs (`osd.3`) and of device classes, where Ceph's own does not say or is to be another.
    pub classes: Vec<NamedClass>,
}

/// What class an OSD or a device class is. As text `NAME=hdd` or `NAME=ssd`.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedClass {
    /// An OSD's, as in `osd.3`, or that of a device class of Ceph.
    pub name: String,
    /// Slow or fast.
    pub class: ServerClass,
}

impl std::str::FromStr for NamedClass {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write osd.N=hdd, osd.N=ssd, CLASS=hdd or CLASS=ssd".to_owned();
        let (name, class) = text.split_once('=').ok_or_else(wrong)?;
        let class = crate::layouts::class(class).map_err(|error| error.to_string())?;
        Ok(Self { name: name.to_owned(), class })
    }
}

/// What stands in the way of a cluster on a Ceph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CephFindings {
    /// Each with its remedy.
    pub problems: Vec<String>,
    /// What makes the pools that are missing, in this order.
    pub commands: Vec<String>,
}

impl std::fmt::Display for CephFindings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut lines = Vec::new();
        for problem in &self.problems {
            lines.push(problem.clone());
        }
        if !self.commands.is_empty() {
            let how = "OSDs without a pool of their own; run these commands, or give --create-pools. A new pool keeps each byte once: it is lost with its OSD";
            lines.push(how.to_owned());
            lines.extend(self.commands.iter().map(|command| format!("  {command}")));
        }
        write!(f, "{}", lines.join("\n"))
    }
}

/// Why no servers were found in a Ceph.
#[derive(Debug, Error)]
pub enum CephError {
    /// It cannot be asked.
    #[error(transparent)]
    Rados(#[from] RadosError),
    /// It has no OSD.
    #[error("this Ceph has no OSDs; add some first (`ceph orch apply osd`)")]
    NoOsds,
    /// OSDs, pools or rights are not as they have to be. Nothing was written.
    #[error("this Ceph cannot serve a cluster yet\n{0}")]
    Findings(CephFindings),
    /// A pool of Ceph cannot be named in a URL.
    #[error("pool {pool} cannot be named in cluster.toml: {what}; rename it")]
    Url {
        /// Its name.
        pool: String,
        /// The fault.
        what: String,
    },
}

/// One server for each OSD of the Ceph, for regions of this size.
pub(super) fn find(options: &CephOptions, region: ByteCount) -> Result<Vec<Server>, InitError> {
    let conf = options.conf.as_deref().map(absolute).transpose()?;
    let mut ceph = ConnectOptions { conf: conf.clone(), ..ConnectOptions::default() };
    if let Some(user) = &options.user {
        ceph.user.clone_from(user);
    }
    let connection = Connection::open(&ceph).map_err(CephError::from)?;
    let search = Search { connection: &connection, options, conf, region };
    Ok(search.run()?)
}

struct Search<'s> {
    connection: &'s Connection,
    options: &'s CephOptions,
    conf: Option<PathBuf>,
    region: ByteCount,
}

impl Search<'_> {
    fn run(&self) -> Result<Vec<Server>, CephError> {
        let mut survey = Survey::read(self.connection)?;
        if survey.osds.is_empty() {
            return Err(CephError::NoOsds);
        }
        let mut problems = Vec::new();
        problems.extend(self.check_blocklist()?);
        for osd in &survey.osds {
            problems.extend(osd.fault());
            problems.extend(self.class_of(osd).err());
        }
        let mut missing = self.missing(&survey, &mut problems);
        if self.options.create_pools && problems.is_empty() && !missing.is_empty() {
            for command in &missing {
                command.run(self.connection)?;
            }
            survey = Survey::read(self.connection)?;
            missing = self.missing(&survey, &mut problems);
        }
        let mut servers = Vec::new();
        for osd in &survey.osds {
            if let (Some(pool), Ok(class)) = (own_pool(&survey, osd), self.class_of(osd)) {
                problems.extend(self.check_pool(osd, pool)?);
                servers.push(self.server(osd, class, pool)?);
            }
        }
        let commands: Vec<_> = missing.into_iter().map(|command| command.text).collect();
        if problems.is_empty() && commands.is_empty() {
            return Ok(servers);
        }
        Err(CephError::Findings(CephFindings { problems, commands }))
    }

    /// The command `ceph` with the options that reach this Ceph.
    fn ceph(&self) -> String {
        let conf = self.conf.as_ref().map(|conf| format!(" --conf {}", crate::shell::quoted_path(conf)));
        let user = self.options.user.as_ref().map(|user| format!(" --id {}", crate::shell::quoted(user)));
        format!("ceph{}{}", conf.unwrap_or_default(), user.unwrap_or_default())
    }

    /// What makes the pools that are missing.
    fn missing(&self, survey: &Survey, problems: &mut Vec<String>) -> Vec<CephCommand> {
        let mut commands = Vec::new();
        for osd in survey.osds.iter().filter(|osd| own_pool(survey, osd).is_none()) {
            let name = format!("stripewise-osd{}", osd.id);
            match survey.pool(&name) {
                Some(pool) => problems.push(taken(&self.ceph(), osd, pool)),
                None => commands.extend(survey.commands_for(osd, &name, &self.ceph())),
            }
        }
        commands
    }

    fn check_blocklist(&self) -> Result<Option<String>, CephError> {
        match probe_blocklist(self.connection) {
            Ok(()) => Ok(None),
            Err(denied @ RadosError::MayNotBlocklist { .. }) => Ok(Some(denied.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// The class of the OSD's devices, or what to do where it is not known.
    fn class_of(&self, osd: &Osd) -> Result<ServerClass, String> {
        let given = |name: &str| self.options.classes.iter().find(|given| given.name == name).map(|given| given.class);
        let device_class = osd.device_class.as_deref();
        if let Some(class) = given(&osd.name).or_else(|| device_class.and_then(given)) {
            return Ok(class);
        }
        match device_class {
            Some("hdd") => Ok(ServerClass::Hdd),
            Some("ssd" | "nvme") => Ok(ServerClass::Ssd),
            Some(other) => Err(format!(
                "{} has the device class `{other}`, which says not whether it is slow or fast; give --osd-class {other}=hdd or --osd-class {other}=ssd",
                osd.name
            )),
            None => Err(format!(
                "{} has no device class; give --osd-class {}=hdd or --osd-class {}=ssd",
                osd.name, osd.name, osd.name
            )),
        }
    }

    fn check_pool(&self, osd: &Osd, pool: &PoolFacts) -> Result<Option<String>, CephError> {
        let PoolFacts { name, replicas, .. } = pool;
        if *replicas != 1 {
            return Ok(Some(format!(
                "pool {name} is to keep each byte on {replicas} OSDs, and its rule reaches {} alone; set its size ({} osd pool set {name} size 1 --yes-i-really-mean-it), or give it another rule",
                osd.name,
                self.ceph()
            )));
        }
        if !osd.is_up || !osd.is_in {
            return Ok(None);
        }
        let region = bytes(self.region.0);
        if let Some(quota) = pool.quota_bytes.filter(|quota| *quota < self.region.0) {
            let quota = bytes(quota);
            return Ok(Some(format!(
                "pool {name} has a quota of {quota}, less than one region of {region}; raise it ({} osd pool set-quota {name} max_bytes BYTES), or choose a smaller --region",
                self.ceph()
            )));
        }
        let free_bytes = free_bytes(self.connection, name)?;
        Ok((free_bytes < self.region.0).then(|| {
            let free = bytes(free_bytes);
            format!("pool {name} can take {free} more, less than one region of {region}; free space on {}, raise its quota if it has one, or choose a smaller --region", osd.name)
        }))
    }

    fn server(&self, osd: &Osd, class: ServerClass, pool: &PoolFacts) -> Result<Server, CephError> {
        let conf = self.conf.as_ref().map(|conf| conf.display().to_string());
        let user = self.options.user.clone();
        let url = RadosUrl { pool: pool.name.clone(), conf, user, ..RadosUrl::default() };
        let url = url.to_url().map_err(|what| CephError::Url { pool: pool.name.clone(), what })?;
        Ok(Server::new(format!("osd{}", osd.id), class, url))
    }
}

/// The pool that is the OSD's server: one that was made for this if there are several.
fn own_pool<'s>(survey: &'s Survey, osd: &Osd) -> Option<&'s PoolFacts> {
    survey.pools_of(osd).min_by_key(|pool| !pool.name.starts_with("stripewise"))
}

fn taken(ceph: &str, osd: &Osd, pool: &PoolFacts) -> String {
    let name = &pool.name;
    let what = match pool.is_replicated {
        true => "does not lie on that OSD alone",
        false => "is erasure-coded, which has no omap",
    };
    format!(
        "{} has no pool of its own, and pool {name}, which would be it, {what}; rename that pool ({ceph} osd pool rename {name} NEW), or name the servers with --server",
        osd.name
    )
}
