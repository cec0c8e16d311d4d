//! `pvfs2-statfs` of OrangeFS 2.8 to 2.10.

use super::super::found::{Ask, Found, FoundTarget, describe};
use super::NATIVE;
use crate::site::DefaultLayout;
use std::path::Path;

pub(super) fn detect(ask: &mut Ask<'_>, mount: &Path) -> Result<Found, String> {
    let path = mount.to_str().ok_or("the mount is not UTF-8")?;
    let text = ask(&["pvfs2-statfs", "-m", path])?;
    describe(&NATIVE.fs, mount, servers(&text), Vec::new(), DefaultLayout::default())
}

/// Behind `I/O server statistics:` the servers in turn: `server: tcp://io0:3334`, and `bytes available  : N`.
fn servers(text: &str) -> Vec<FoundTarget> {
    let mut servers: Vec<FoundTarget> = Vec::new();
    let lines = text.lines().skip_while(|line| !line.starts_with("I/O server statistics:"));
    for line in lines.take_while(|line| !line.starts_with("meta server statistics:")) {
        let Some((key, value)) = line.split_once(':') else { continue };
        match (key.trim(), servers.last_mut()) {
            ("server", _) => {
                let address = value.trim().to_owned();
                servers.push(FoundTarget {
                    name: format!("io{}", servers.len()),
                    address: Some(address),
                    ..FoundTarget::default()
                });
            }
            ("bytes available", Some(server)) => server.free_bytes = value.trim().parse().ok(),
            _ => {}
        }
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::detected;

    #[test]
    fn servers_and_space_are_found_on_2_8_to_2_10() {
        for text in [
            include_str!("fixtures/2.8.8.txt"),
            include_str!("fixtures/2.9.8.txt"),
            include_str!("fixtures/2.10.0.txt"),
        ] {
            let site = detected("orangefs", text);
            let addresses: Vec<&str> = site.targets.iter().filter_map(|target| target.address.as_deref()).collect();
            assert_eq!(addresses, ["tcp://io0:3334", "tcp://io1:3334"]);
            let capacities = [0, 1].map(|target| site.group(target).capacity);
            assert_eq!(capacities, [64, 128].map(|gib| Some(stripewise_layout::ByteCount(gib << 30))));
        }
    }
}
