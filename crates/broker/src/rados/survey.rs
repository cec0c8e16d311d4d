//! What there is in a Ceph: OSDs, the rules that place pools on them, and pools; and what it takes to give an OSD a pool of its own.

use super::error::RadosError;
use super::{Connection, space_of};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Placement groups of a new pool.
const PLACEMENT_GROUPS: u32 = 32;
/// Nobody has this address.
const HARMLESS_ADDRESS: &str = "0.0.0.0:0/0";
/// What Ceph is told that new pools are for.
const APPLICATION: &str = "stripewise";

/// One OSD.
#[derive(Clone, PartialEq, Debug)]
pub struct Osd {
    /// Its number.
    pub id: i32,
    /// As in `osd.3`.
    pub name: String,
    /// As Ceph has it: `hdd`, `ssd`, `nvme` or another; `None`: not known.
    pub device_class: Option<String>,
    /// Of its CRUSH item, as the first bucket that holds it has it.
    pub weight: f64,
    /// It runs.
    pub is_up: bool,
    /// Data is placed on it.
    pub is_in: bool,
    /// It takes no more bytes.
    pub is_full: bool,
}

/// One pool.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolFacts {
    /// Its name.
    pub name: String,
    /// Else it is erasure-coded.
    pub is_replicated: bool,
    /// How many OSDs hold each byte.
    pub replicas: u64,
    /// Most bytes that it takes; `None`: no quota.
    pub quota_bytes: Option<u64>,
    rule: i64,
}

#[derive(Clone, PartialEq, Debug)]
struct Rule {
    name: String,
    is_replicated: bool,
    osds: BTreeSet<i32>,
}

/// A command of `ceph`.
#[derive(Clone, PartialEq, Debug)]
pub struct CephCommand {
    /// As a person types it.
    pub text: String,
    request: Value,
}

/// What there is.
#[derive(Clone, PartialEq, Debug)]
pub struct Survey {
    /// In the order of their numbers.
    pub osds: Vec<Osd>,
    /// In the order of their names.
    pub pools: Vec<PoolFacts>,
    rules: BTreeMap<i64, Rule>,
    /// Buckets of CRUSH by name, those of device classes excluded, with the OSDs below each.
    buckets: BTreeMap<String, BTreeSet<i32>>,
}

fn ask(connection: &Connection, prefix: &str) -> Result<Value, RadosError> {
    let answer = connection.command(&json!({"prefix": prefix, "format": "json"}).to_string())?;
    serde_json::from_slice(&answer).map_err(|error| unreadable(error.to_string()))
}

fn unreadable(what: String) -> RadosError {
    RadosError::Answer { about: "Ceph".to_owned(), action: "what OSDs and pools there are", what }
}

fn list<'v>(value: &'v Value, key: &str) -> Result<&'v [Value], RadosError> {
    value[key].as_array().map(Vec::as_slice).ok_or_else(|| unreadable(format!("no list `{key}`")))
}

fn number(value: &Value, key: &str) -> Result<i64, RadosError> {
    value[key].as_i64().ok_or_else(|| unreadable(format!("no number `{key}`")))
}

fn osd_number(value: &Value, key: &str) -> Result<i32, RadosError> {
    i32::try_from(number(value, key)?).map_err(|error| unreadable(error.to_string()))
}

fn name(value: &Value, key: &str) -> Result<String, RadosError> {
    value[key].as_str().map(str::to_owned).ok_or_else(|| unreadable(format!("no text `{key}`")))
}

impl Survey {
    /// Asks the monitors.
    ///
    /// # Errors
    /// The cluster's, or [`RadosError::Answer`].
    pub fn read(connection: &Connection) -> Result<Self, RadosError> {
        Self::of(&ask(connection, "osd dump")?, &ask(connection, "osd crush dump")?)
    }

    fn of(map: &Value, crush: &Value) -> Result<Self, RadosError> {
        let mut buckets = BTreeMap::new();
        for bucket in list(crush, "buckets")? {
            buckets.insert(number(bucket, "id")?, bucket);
        }
        let mut rules = BTreeMap::new();
        for rule in list(crush, "rules")? {
            let mut osds = BTreeSet::new();
            for step in list(rule, "steps")?.iter().filter(|step| step["op"] == "take") {
                osds_below(&buckets, number(step, "item")?, &mut osds)?;
            }
            let is_replicated = number(rule, "type")? == 1;
            rules.insert(number(rule, "rule_id")?, Rule { name: name(rule, "rule_name")?, is_replicated, osds });
        }
        let mut named = BTreeMap::new();
        for (id, bucket) in &buckets {
            let name = name(bucket, "name")?;
            if !name.contains('~') {
                let mut osds = BTreeSet::new();
                osds_below(&buckets, *id, &mut osds)?;
                named.insert(name, osds);
            }
        }
        let mut osds = Vec::new();
        for osd in list(map, "osds")? {
            let id = osd_number(osd, "osd")?;
            let device = list(crush, "devices")?.iter().find(|device| device["id"] == id);
            let class = device.and_then(|device| device["class"].as_str());
            let is = |state: &str| osd["state"].as_array().is_some_and(|states| states.iter().any(|is| is == state));
            osds.push(Osd {
                id,
                name: format!("osd.{id}"),
                device_class: class.filter(|class| !class.is_empty()).map(str::to_owned),
                weight: weight_of(&buckets, id),
                is_up: osd["up"] == 1,
                is_in: osd["in"] == 1,
                is_full: is("full"),
            });
        }
        osds.sort_by_key(|osd| osd.id);
        let mut pools = Vec::new();
        for pool in list(map, "pools")? {
            pools.push(PoolFacts {
                name: name(pool, "pool_name")?,
                is_replicated: number(pool, "type")? == 1,
                replicas: pool["size"].as_u64().unwrap_or_default(),
                quota_bytes: pool["quota_max_bytes"].as_u64().filter(|bytes| *bytes > 0),
                rule: number(pool, "crush_rule")?,
            });
        }
        pools.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self { osds, pools, rules, buckets: named })
    }

    /// The replicated pools that lie on this OSD and no other.
    pub fn pools_of(&self, osd: &Osd) -> impl Iterator<Item = &PoolFacts> {
        let lies_there =
            |pool: &&PoolFacts| self.rules.get(&pool.rule).is_some_and(|rule| rule.osds == BTreeSet::from([osd.id]));
        self.pools.iter().filter(|pool| pool.is_replicated).filter(lies_there)
    }

    /// The pool of this name.
    #[must_use]
    pub fn pool(&self, name: &str) -> Option<&PoolFacts> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// The OSDs that the pool's CRUSH rule reaches, whether they run or not.
    pub fn osds_of(&self, pool: &PoolFacts) -> impl Iterator<Item = &Osd> {
        let reached = self.rules.get(&pool.rule).map(|rule| &rule.osds);
        self.osds.iter().filter(move |osd| reached.is_some_and(|reached| reached.contains(&osd.id)))
    }

    /// What makes a pool `name` that lies on this OSD alone, each byte once. `ceph` is the command with its options. The bucket and the rule that it needs are made
    /// where there are none; they are named like the pool.
    #[must_use]
    pub fn commands_for(&self, osd: &Osd, name: &str, ceph: &str) -> Vec<CephCommand> {
        let only = BTreeSet::from([osd.id]);
        let mut commands = Vec::new();
        let mut add =
            |words: String, request: Value| commands.push(CephCommand { text: format!("{ceph} {words}"), request });
        let rule = self.rules.values().find(|rule| rule.is_replicated && rule.osds == only);
        if rule.is_none() {
            let bucket = self.buckets.iter().find(|(_, osds)| **osds == only);
            if bucket.is_none() {
                // Beside the roots that other pools take: none of their data moves.
                let weight = if osd.weight > 0.0 { osd.weight } else { 1.0 };
                add(
                    format!("osd crush add-bucket {name} host"),
                    json!({"prefix": "osd crush add-bucket", "name": name, "type": "host"}),
                );
                add(
                    format!("osd crush add {} {weight:.5} host={name}", osd.name),
                    json!({"prefix": "osd crush add", "id": osd.id, "weight": weight, "args": [format!("host={name}")]}),
                );
            }
            let bucket = bucket.map_or(name, |(bucket, _)| bucket);
            add(
                format!("osd crush rule create-replicated {name} {bucket} osd"),
                json!({"prefix": "osd crush rule create-replicated", "name": name, "root": bucket, "type": "osd"}),
            );
        }
        let rule = rule.map_or(name, |rule| &rule.name);
        let groups = PLACEMENT_GROUPS;
        add(
            format!("osd pool create {name} {groups} {groups} replicated {rule} --size=1"),
            json!({"prefix": "osd pool create", "pool": name, "pg_num": groups, "pgp_num": groups, "pool_type": "replicated", "rule": rule, "size": 1}),
        );
        add(
            format!("osd pool application enable {name} {APPLICATION}"),
            json!({"prefix": "osd pool application enable", "pool": name, "app": APPLICATION}),
        );
        commands
    }
}

fn osds_below(buckets: &BTreeMap<i64, &Value>, item: i64, osds: &mut BTreeSet<i32>) -> Result<(), RadosError> {
    if let Ok(osd) = i32::try_from(item)
        && osd >= 0
    {
        osds.insert(osd);
        return Ok(());
    }
    // A tree: CRUSH refuses circles.
    let Some(bucket) = buckets.get(&item) else { return Ok(()) };
    list(bucket, "items")?.iter().try_for_each(|item| osds_below(buckets, number(item, "id")?, osds))
}

/// Ceph gives weights as numbers of 16 binary places.
fn weight_of(buckets: &BTreeMap<i64, &Value>, osd: i32) -> f64 {
    let items = buckets.values().filter_map(|bucket| bucket["items"].as_array()).flatten();
    let mut weights = items.filter(|item| item["id"] == osd).filter_map(|item| item["weight"].as_f64());
    weights.find(|weight| *weight > 0.0).unwrap_or_default() / 65536.0
}

impl Osd {
    /// Why nothing can be kept on it, and what to do; `None`: it can.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let Self { id, name, .. } = self;
        if !self.is_up {
            return Some(format!(
                "{name} is down; start it (systemctl start ceph-osd@{id}, or ceph orch daemon start {name})"
            ));
        }
        if !self.is_in {
            return Some(format!("{name} is out: Ceph places nothing on it; take it in (ceph osd in {id})"));
        }
        self.is_full.then(|| format!("{name} is full; free space on it, or raise the limit (ceph osd set-full-ratio)"))
    }
}

impl CephCommand {
    /// Runs it.
    ///
    /// # Errors
    /// [`RadosError::Denied`], or [`RadosError::Refused`] with what Ceph says.
    pub fn run(&self, connection: &Connection) -> Result<(), RadosError> {
        connection.order(&self.request.to_string(), &self.text)
    }
}

/// That the connection's user may blocklist clients: an address that nobody has is added and removed again.
///
/// # Errors
/// [`RadosError::MayNotBlocklist`], or the cluster's.
pub fn probe_blocklist(connection: &Connection) -> Result<(), RadosError> {
    let request = |operation: &str| {
        let prefix = "osd blocklist";
        let request = json!({"prefix": prefix, "blocklistop": operation, "addr": HARMLESS_ADDRESS});
        connection.order(&request.to_string(), &format!("ceph {prefix} {operation} {HARMLESS_ADDRESS}"))
    };
    let and_again = request("add").and_then(|()| request("rm"));
    and_again.map_err(|error| match error {
        RadosError::Denied { user, .. } => RadosError::MayNotBlocklist { user, ceph: connection.ceph().to_owned() },
        error => error,
    })
}

/// What a pool can still take, in bytes.
///
/// # Errors
/// The cluster's.
pub fn free_bytes(connection: &Connection, pool: &str) -> Result<u64, RadosError> {
    space_of(connection, pool).map(|(free_bytes, _)| free_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two OSDs on one host, one on another; a pool on the latter alone, one on both of a class, and an erasure-coded one.
    fn survey() -> Survey {
        let item = |id: i64| json!({"id": id, "weight": 65536, "pos": 0});
        let bucket = |id: i64, name: &str, items: Vec<Value>| json!({"id": id, "name": name, "items": items});
        let rule = |id: i64, name: &str, of: i64, take: i64| {
            let steps = [json!({"op": "take", "item": take}), json!({"op": "emit"})];
            json!({"rule_id": id, "rule_name": name, "type": of, "steps": steps})
        };
        let crush = json!({
            "devices": [{"id": 0, "class": "hdd"}, {"id": 1, "class": "nvme"}, {"id": 2}],
            "buckets": [
                bucket(-1, "default", vec![item(-2), item(-3)]),
                bucket(-2, "one", vec![item(0), item(1)]),
                bucket(-3, "two", vec![item(2)]),
                bucket(-4, "one~nvme", vec![item(1)]),
            ],
            "rules": [rule(0, "all", 1, -1), rule(1, "fast", 1, -4), rule(2, "coded", 3, -3)],
        });
        let pool = |name: &str, of: i64, rule: i64| json!({"pool_name": name, "type": of, "size": 1, "crush_rule": rule, "quota_max_bytes": 0});
        let osd = |id: i64, states: &[&str]| json!({"osd": id, "up": 1, "in": 1, "state": states});
        let map = json!({
            "osds": [osd(2, &["exists", "up", "full"]), osd(0, &["exists", "up"]), osd(1, &[])],
            "pools": [pool("wide", 1, 0), pool("quick", 1, 1), pool("coded", 3, 2)],
        });
        Survey::of(&map, &crush).unwrap()
    }

    fn texts(commands: &[CephCommand]) -> Vec<&str> {
        commands.iter().map(|command| command.text.as_str()).collect()
    }

    #[test]
    fn pools_of_an_osd_are_those_whose_rule_reaches_no_other() {
        let survey = survey();
        let pools: Vec<Vec<_>> =
            survey.osds.iter().map(|osd| survey.pools_of(osd).map(|pool| pool.name.as_str()).collect()).collect();
        assert_eq!(pools, [vec![], vec!["quick"], vec![]]);
        let classes: Vec<_> = survey.osds.iter().map(|osd| osd.device_class.as_deref()).collect();
        assert_eq!(classes, [Some("hdd"), Some("nvme"), None]);
        assert_eq!(survey.osds.iter().map(|osd| osd.is_full).collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn buckets_and_rules_are_made_where_there_are_none() {
        let survey = survey();
        let of = |osd: usize| survey.commands_for(&survey.osds[osd], "new", "ceph");
        // Its host holds another OSD as well.
        assert_eq!(
            texts(&of(0)),
            [
                "ceph osd crush add-bucket new host",
                "ceph osd crush add osd.0 1.00000 host=new",
                "ceph osd crush rule create-replicated new new osd",
                "ceph osd pool create new 32 32 replicated new --size=1",
                "ceph osd pool application enable new stripewise",
            ]
        );
        // A rule is there.
        assert_eq!(texts(&of(1))[0], "ceph osd pool create new 32 32 replicated fast --size=1");
        // A host of its own is there; the rule that takes it is for erasure-coded pools.
        assert_eq!(texts(&of(2))[0], "ceph osd crush rule create-replicated new two osd");
    }
}
