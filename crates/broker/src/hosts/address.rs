//! The address on which a host listens.

use super::error::LinkError;
use if_addrs::{IfAddr, Interface};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The address that `listen` means: an IP address, `IP:PORT`, the name of a network interface, `NAME:PORT`, or nothing, which is the first interface that is
/// up and not the loopback, or 127.0.0.1 if there is none. Without a port it is 0. Of an interface's addresses the first of IPv4 is taken, otherwise the first of IPv6
/// that is not link-local.
pub fn address_of(listen: &str) -> Result<SocketAddr, LinkError> {
    if let Some(address) = literal(listen) {
        return Ok(address);
    }
    let fault = |what: String| LinkError::Address { listen: listen.to_owned(), what };
    let interfaces =
        if_addrs::get_if_addrs().map_err(|error| fault(format!("the network interfaces cannot be listed: {error}")))?;
    choose(listen, &interfaces).map_err(fault)
}

fn literal(listen: &str) -> Option<SocketAddr> {
    let alone = listen.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(listen);
    let address = alone.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
    address.or_else(|_| listen.parse()).ok()
}

fn choose(listen: &str, interfaces: &[Interface]) -> Result<SocketAddr, String> {
    if listen.is_empty() {
        let mut names: Vec<&str> = Vec::new();
        for interface in interfaces.iter().filter(|interface| !interface.is_loopback() && interface.is_oper_up()) {
            if !names.contains(&&*interface.name) {
                names.push(&interface.name);
            }
        }
        let found = names.into_iter().find_map(|name| address_on(name, interfaces));
        return Ok(SocketAddr::new(found.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), 0));
    }
    let is_there = |name: &str| interfaces.iter().any(|interface| interface.name == name);
    // The name of an interface may have a colon.
    let (name, port) = match listen.rsplit_once(':') {
        Some((name, port)) if !is_there(listen) => match port.parse() {
            Ok(port) => (name, port),
            Err(_) => return Err(format!("{port:?} is no port")),
        },
        _ => (listen, 0),
    };
    if !is_there(name) {
        let mut names: Vec<_> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
        names.dedup();
        return Err(format!(
            "no network interface with an address has the name {name:?}; there are {}",
            names.join(", ")
        ));
    }
    let ip = address_on(name, interfaces).ok_or_else(|| format!("{name} has no address but link-local ones"))?;
    Ok(SocketAddr::new(ip, port))
}

fn address_on(name: &str, interfaces: &[Interface]) -> Option<IpAddr> {
    let of_name = || interfaces.iter().filter(|interface| interface.name == name);
    let v4 = of_name().find_map(|interface| match &interface.addr {
        IfAddr::V4(address) => Some(IpAddr::V4(address.ip)),
        IfAddr::V6(_) => None,
    });
    let v6 = || {
        of_name().find_map(|interface| match &interface.addr {
            IfAddr::V6(address) if !address.ip.is_unicast_link_local() => Some(IpAddr::V6(address.ip)),
            _ => None,
        })
    };
    v4.or_else(v6)
}
