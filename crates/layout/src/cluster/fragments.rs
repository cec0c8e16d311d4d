//! Room that is set aside on SServers for fragments (iBridge): how much for which HServer, and where.
//!
//! Every HServer may have a *log* on one SServer, which takes the small sub-requests that would cost the disk a seek. The room of the logs is
//! static: it is taken off the SServer's capacity for everything else, so that regions and fragments never compete. Nothing is set aside unless
//! the cluster file asks for it, by `fragments = true` or by any `fragment_room`.

use super::{Cluster, Fault, ServerClass};
use crate::{ByteCount, ServerId};

/// 20 KiB. Ours: the article on iBridge gives none.
pub const DEFAULT_FRAGMENT_THRESHOLD_BYTES: u64 = 20 << 10;

/// Room for the fragments of each HServer where `fragments = true` and nothing else is said: 256 MiB.
pub const DEFAULT_FRAGMENT_CAPACITY_BYTES: u64 = 256 << 20;

/// No sub-request of more than 1 MiB is small to a disk: at some 100 MB/s its transfer takes longer than a seek.
pub const MAX_FRAGMENT_THRESHOLD_BYTES: u64 = 1 << 20;

/// A slot holds at least one page.
const MIN_SLOT_BYTES: u64 = 4096;

/// Where the fragments of an HServer go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentLog {
    /// The SServer that holds the log.
    pub on: ServerId,
    /// Bytes set aside there for all logs of the HServer's objects together: at least one slot, whole slots.
    pub capacity: ByteCount,
}

impl Cluster {
    /// Sub-requests shorter than this may be fragments; from 1 byte to 1 MiB.
    #[must_use]
    pub fn fragment_threshold(&self) -> ByteCount {
        self.fragment_threshold.unwrap_or(ByteCount(DEFAULT_FRAGMENT_THRESHOLD_BYTES))
    }

    /// Length of the slots that logs are cut into: the least power of two that holds the threshold, at least 4 KiB.
    #[must_use]
    pub fn fragment_slot(&self) -> ByteCount {
        ByteCount(self.fragment_threshold().0.next_power_of_two().max(MIN_SLOT_BYTES))
    }

    /// Where the fragments of `server` go, and how many bytes are set aside for them; `None` of an SServer, and where no space is set aside.
    ///
    /// A server that does not say where its fragments go (`fragments_on`) takes the SServers in turn, by its place among the HServers.
    #[must_use]
    pub fn fragment_log(&self, server: ServerId) -> Option<FragmentLog> {
        let slot_bytes = self.fragment_slot().0;
        let capacity = ByteCount(self.wanted_fragment_capacity(server)?.0 / slot_bytes * slot_bytes);
        let on = match &self.server(server)?.fragments_on {
            Some(name) => self.of_class(ServerClass::Ssd).find(|(_, ssd)| ssd.name == *name)?.0,
            None => {
                let turn = self.of_class(ServerClass::Hdd).position(|(id, _)| id == server)?;
                let sservers = self.of_class(ServerClass::Ssd).count();
                self.of_class(ServerClass::Ssd).nth(turn.checked_rem(sservers)?)?.0
            }
        };
        (capacity.0 > 0).then_some(FragmentLog { on, capacity })
    }

    /// Bytes of `server` that are set aside for the fragments of HServers; 0 of an HServer.
    #[must_use]
    pub fn set_aside_bytes(&self, server: ServerId) -> u64 {
        self.logs_on(server).fold(0, |sum, (_, log)| sum.saturating_add(log.capacity.0))
    }

    /// Whether room is set aside for the fragments of any server.
    #[must_use]
    pub fn has_fragment_capacity(&self) -> bool {
        self.ids_of_class(ServerClass::Hdd).into_iter().any(|server| self.fragment_log(server).is_some())
    }

    /// The logs that lie on `server`, each with the HServer whose fragments it takes.
    fn logs_on(&self, server: ServerId) -> impl Iterator<Item = (ServerId, FragmentLog)> {
        let hservers = self.of_class(ServerClass::Hdd).map(|(id, _)| id);
        hservers.filter_map(move |id| self.fragment_log(id).filter(|log| log.on == server).map(|log| (id, log)))
    }

    /// What the cluster file asks for an HServer; `None` when nothing, and of an SServer.
    fn wanted_fragment_capacity(&self, server: ServerId) -> Option<ByteCount> {
        let hserver = self.server(server).filter(|server| server.class == ServerClass::Hdd)?;
        let default = self.fragments.then_some(ByteCount(DEFAULT_FRAGMENT_CAPACITY_BYTES));
        hserver.fragment_room.or(self.fragment_room).or(default)
    }

    /// What is wrong with the keys that concern fragments.
    pub(super) fn check_fragments(&self) -> Result<(), Fault> {
        if let Some(threshold) = self.fragment_threshold
            && !(1..=MAX_FRAGMENT_THRESHOLD_BYTES).contains(&threshold.0)
        {
            let default = ByteCount(DEFAULT_FRAGMENT_THRESHOLD_BYTES);
            return Err(Fault::at_top(
                "fragment_threshold",
                format!(
                    "fragment_threshold = \"{threshold}\" must be more than 0 and at most 1MiB; leave it out for {default}"
                ),
            ));
        }
        self.check_fragment_servers()?;
        let asking = self.ids_of_class(ServerClass::Hdd).into_iter().find(|id| {
            let wanted = self.wanted_fragment_capacity(*id).filter(|capacity| capacity.0 > 0);
            wanted.is_some_and(|capacity| capacity < self.fragment_slot())
        });
        if let Some(id) = asking {
            return Err(self.capacity_below_a_slot(id));
        }
        self.check_fragment_capacity()
    }

    /// Keys of `[[server]]`.
    fn check_fragment_servers(&self) -> Result<(), Fault> {
        let sservers: Vec<&str> = self.of_class(ServerClass::Ssd).map(|(_, server)| server.name.as_str()).collect();
        let remedy = match sservers.as_slice() {
            [] => "there is none of class ssd: leave the key out".to_owned(),
            names => format!("name one of class ssd ({})", names.join(", ")),
        };
        for (index, server) in self.servers.iter().enumerate() {
            let Some(on) = &server.fragments_on else {
                if server.class == ServerClass::Ssd && server.fragment_room.is_some() {
                    let message = format!(
                        "server `{}`: fragment_room belongs to servers of class hdd, for whose fragments it reserves space on a server of class ssd; move it to those",
                        server.name
                    );
                    return Err(Fault::of_server(index, "fragment_room", message));
                }
                continue;
            };
            let fault = |what: String| {
                Err(Fault::of_server(index, "fragments_on", format!("server `{}`: {what}", server.name)))
            };
            if server.class == ServerClass::Ssd {
                return fault(format!(
                    "fragments_on = \"{on}\" belongs to servers of class hdd, whose fragments it sends to a server of class ssd; leave it out here"
                ));
            }
            match self.servers.iter().find(|other| other.name == *on) {
                None => return fault(format!("fragments_on = \"{on}\" is the name of no server; {remedy}")),
                Some(other) if other.class != ServerClass::Ssd => {
                    return fault(format!("fragments_on = \"{on}\" is a server of class {}; {remedy}", other.class));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn capacity_below_a_slot(&self, hserver: ServerId) -> Fault {
        let (slot, threshold) = (self.fragment_slot(), self.fragment_threshold());
        let what = |capacity: ByteCount| {
            format!(
                "fragment_room = \"{capacity}\" is less than one slot of {slot}, which fragment_threshold {threshold} asks for; give at least {slot}, or 0 for none"
            )
        };
        let index = usize::from(hserver.0);
        match (self.servers[index].fragment_room, self.fragment_room) {
            (Some(capacity), _) => {
                let message = format!("server `{}`: {}", self.servers[index].name, what(capacity));
                Fault::of_server(index, "fragment_room", message)
            }
            (None, capacity) => Fault::at_top("fragment_room", what(capacity.unwrap_or_default())),
        }
    }

    /// Whether there are servers for what is asked, and whether they can hold it.
    fn check_fragment_capacity(&self) -> Result<(), Fault> {
        let own = self.servers.iter().position(|server| server.fragment_room.is_some_and(|capacity| capacity.0 > 0));
        let asked = match (self.fragments, self.fragment_room.filter(|capacity| capacity.0 > 0), own) {
            (true, _, _) => Some(("fragments", "fragments = true".to_owned(), None)),
            (_, Some(capacity), _) => Some(("fragment_room", format!("fragment_room = \"{capacity}\""), None)),
            (_, None, Some(index)) => Some(("fragment_room", "fragment_room".to_owned(), Some(index))),
            (_, None, None) => None,
        };
        let Some((key, said, server)) = asked else { return Ok(()) };
        for class in [ServerClass::Hdd, ServerClass::Ssd] {
            if self.of_class(class).next().is_none() {
                let message = format!(
                    "{said}: the fragments of servers of class hdd go to servers of class ssd, and there is none of class {class}; add one, or leave the key out"
                );
                return Err(Fault { server, key: Some(key), message });
            }
        }
        if self.fragments && !self.has_fragment_capacity() {
            let message = "fragments = true, but fragment_room = \"0B\" sets nothing aside for any server; give it space, or leave `fragments` out";
            return Err(Fault::at_top("fragments", message.to_owned()));
        }
        for (id, server) in self.of_class(ServerClass::Ssd) {
            let set_aside = ByteCount(self.set_aside_bytes(id));
            let Some(capacity) = server
                .capacity
                .filter(|capacity| set_aside.0 > 0 && capacity.0 <= server.reserve.0.saturating_add(set_aside.0))
            else {
                continue;
            };
            let names: Vec<&str> =
                self.logs_on(id).filter_map(|(hdd, _)| Some(self.server(hdd)?.name.as_str())).collect();
            let message = format!(
                "server `{}`: capacity {capacity} is no more than reserve {} and the {set_aside} set aside for fragments of {}; give a smaller fragment_room, send some elsewhere by fragments_on, or raise the capacity",
                server.name,
                server.reserve,
                names.join(", ")
            );
            return Err(Fault::of_server(usize::from(id.0), "capacity", message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const HEAD: &str = "version = 1\nid = \"c0ffee\"\nstate = \"state\"\n";

    /// Three disks and two SSDs of 1 GiB less 16 MiB; `top` is line 4, `hdd1` line 12, `ssd0` line 21.
    fn text(top: &str, hdd1: &str, ssd0: &str) -> String {
        let server = |name: &str, class: &str, more: &str| {
            format!("[[server]]\nname = \"{name}\"\nclass = \"{class}\"\nurl = \"file://{name}\"\n{more}\n")
        };
        let capacity = "capacity = \"1GiB\"\nreserve = \"16MiB\"";
        let servers = [
            server("hdd0", "hdd", ""),
            server("hdd1", "hdd", hdd1),
            server("hdd2", "hdd", ""),
            server("ssd0", "ssd", &format!("{ssd0}\n{capacity}")),
            server("ssd1", "ssd", capacity),
        ];
        format!("{HEAD}{top}\n{}", servers.concat())
    }

    fn parse(top: &str, hdd1: &str, ssd0: &str) -> Result<Cluster, String> {
        Cluster::parse(&text(top, hdd1, ssd0), Path::new("/x/cluster.toml")).map_err(|error| error.to_string())
    }

    fn logs(cluster: &Cluster) -> Vec<Option<(u16, u64)>> {
        let log = |id| cluster.fragment_log(ServerId(id)).map(|log| (log.on.0, log.capacity.0));
        (0..6).map(log).collect()
    }

    #[test]
    fn nothing_is_set_aside_unless_asked_for() {
        for top in ["", "fragments = false", "fragment_threshold = \"4KiB\"", "fragment_room = \"0\""] {
            let cluster = parse(top, "fragments_on = \"ssd1\"", "").unwrap();
            assert_eq!(logs(&cluster), [None; 6], "{top}");
            assert!(!cluster.has_fragment_capacity());
            assert_eq!(cluster.room_bytes(ServerId(3)), Some(1008 << 20));
        }
        let old = parse("", "", "").unwrap();
        assert!(!old.fragments && !old.to_toml().contains("fragment"), "{}", old.to_toml());
    }

    #[test]
    fn hservers_take_the_sservers_in_turn_and_what_they_take_is_taken_off() {
        let cluster = parse("fragments = true", "", "").unwrap();
        let capacity = 256 << 20;
        assert_eq!(logs(&cluster), [Some((3, capacity)), Some((4, capacity)), Some((3, capacity)), None, None, None]);
        assert_eq!([0, 3, 4].map(|id| cluster.set_aside_bytes(ServerId(id))), [0, 2 * capacity, capacity]);
        assert_eq!([0, 3, 4].map(|id| cluster.room_bytes(ServerId(id))), [None, Some(496 << 20), Some(752 << 20)]);
        assert_eq!([0, 3, 9].map(|id| cluster.kept_free_bytes(ServerId(id))), [0, 528 << 20, 0]);
    }

    #[test]
    fn a_server_has_its_own_say() {
        let mib = 1 << 20;
        let cluster =
            parse("fragment_room = \"8MiB\"", "fragments_on = \"ssd0\"\nfragment_room = \"1MiB\"", "").unwrap();
        assert!(!cluster.fragments, "space alone switches nothing on");
        assert_eq!(logs(&cluster)[..3], [Some((3, 8 * mib)), Some((3, mib)), Some((3, 8 * mib))]);
        let alone = parse("", "fragment_room = \"100000\"", "").unwrap();
        assert_eq!(logs(&alone)[..3], [None, Some((4, 98304)), None], "whole slots of 32 KiB");
        let without = parse("fragments = true\nfragment_room = \"8MiB\"", "fragment_room = \"0\"", "").unwrap();
        assert_eq!(logs(&without)[..3], [Some((3, 8 * mib)), None, Some((3, 8 * mib))]);
    }

    #[test]
    fn slots_are_powers_of_two_that_hold_the_threshold() {
        for (threshold, slot_bytes) in
            [("1", 4096), ("4KiB", 4096), ("4097", 8192), ("20KiB", 32768), ("32KiB", 32768), ("1MiB", 1 << 20)]
        {
            let cluster = parse(&format!("fragment_threshold = \"{threshold}\""), "", "").unwrap();
            assert_eq!(cluster.fragment_slot().0, slot_bytes, "{threshold}");
        }
        let default = parse("", "", "").unwrap();
        assert_eq!((default.fragment_threshold().0, default.fragment_slot().0), (20480, 32768));
    }

    #[test]
    fn the_keys_survive_being_written() {
        let top = "fragments = true\nfragment_threshold = \"16KiB\"\nfragment_room = \"4MiB\"";
        let cluster = parse(top, "fragments_on = \"ssd0\"\nfragment_room = \"1MiB\"", "").unwrap();
        assert_eq!(Cluster::parse(&cluster.to_toml(), Path::new("/y/c.toml")).unwrap(), cluster);
    }

    #[test]
    fn faults_name_line_value_and_remedy() {
        for (top, hdd1, ssd0, expected) in [
            ("fragment_threshold = \"0\"", "", "", ["line 4: ", "\"0B\"", "more than 0"]),
            ("fragment_threshold = \"1025KiB\"", "", "", ["line 4: ", "\"1025KiB\"", "at most 1MiB"]),
            ("fragments = \"yes\"", "", "", ["line 4", "yes", "boolean"]),
            ("fragment_rom = \"1MiB\"", "", "", ["line 4", "fragment_rom", "fragment_room"]),
            ("", "fragments_on = \"ssd7\"", "", ["line 14: ", "\"ssd7\"", "name one of class ssd (ssd0, ssd1)"]),
            ("", "fragments_on = \"hdd0\"", "", ["line 14: ", "\"hdd0\" is a server of class hdd", "(ssd0, ssd1)"]),
            ("", "", "fragments_on = \"ssd1\"", ["line 24: ", "server `ssd0`", "leave it out here"]),
            ("", "", "fragment_room = \"1MiB\"", ["line 24: ", "server `ssd0`", "move it to those"]),
            ("fragment_room = \"31KiB\"", "", "", ["line 4: ", "\"31KiB\"", "at least 32KiB"]),
            ("", "fragment_room = \"1\"", "", ["line 14: ", "server `hdd1`: fragment_room = \"1B\"", "or 0 for none"]),
            ("fragments = true\nfragment_room = \"0\"", "", "", ["line 4: ", "\"0B\"", "give it space"]),
            ("fragment_room = \"504MiB\"", "", "", ["line 25: ", "capacity 1GiB", "hdd0, hdd2; give a smaller"]),
            ("fragment_room = \"16EiB\"", "", "", ["line 4", "`16EiB`", "is not a size"]),
            ("fragment_room = \"16383PiB\"", "", "", ["line 25: ", "capacity 1GiB", "give a smaller"]),
        ] {
            let error = parse(top, hdd1, ssd0).unwrap_err();
            for part in expected {
                assert!(error.contains(part), "{top}|{hdd1}|{ssd0}: {part} in {error}");
            }
        }
        assert!(parse("fragment_room = \"503MiB\"", "", "").is_ok());
    }

    #[test]
    fn both_classes_are_needed() {
        let text = |key: &str, class: &str, more: &str| {
            format!("{HEAD}{key}\n[[server]]\nname = \"a\"\nclass = \"{class}\"\nurl = \"file://a\"\n{more}")
        };
        let fault = |text: String| Cluster::parse(&text, Path::new("/x/cluster.toml")).unwrap_err().to_string();
        let no_ssd = fault(text("fragments = true", "hdd", ""));
        assert!(
            no_ssd.contains("line 4: fragments = true") && no_ssd.contains("none of class ssd; add one"),
            "{no_ssd}"
        );
        let no_hdd = fault(text("fragment_room = \"1MiB\"", "ssd", ""));
        assert!(
            no_hdd.contains("line 4: fragment_room = \"1MiB\"") && no_hdd.contains("none of class hdd"),
            "{no_hdd}"
        );
        let own = fault(text("", "hdd", "fragment_room = \"1MiB\"\n"));
        assert!(own.contains("line 9: ") && own.contains("none of class ssd"), "{own}");
        let elsewhere = fault(text("", "hdd", "fragments_on = \"b\"\n"));
        assert!(elsewhere.contains("there is none of class ssd: leave the key out"), "{elsewhere}");
        assert!(Cluster::parse(&text("fragments = false", "hdd", ""), Path::new("/x/c.toml")).is_ok());
    }
}
