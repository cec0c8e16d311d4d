//! `stripewise devices`: the devices and links that `init --emulated` knows by name.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use stripewise::table::Table;
use stripewise_device::{DEVICES, DISKS, DRIVES, DiskSpec, FlashSpec, LINKS, Service};
use stripewise_layout::Direction;
use stripewise_layout::figures::bytes;

/// List the devices and links that emulated servers can have
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise devices
  stripewise devices --json")]
pub(crate) struct DevicesArgs {}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Listed {
    /// Devices.
    devices: Vec<Device>,
    /// Links.
    links: Vec<Link>,
    /// Mechanics, for `simulate --disk mechanical`.
    disks: Vec<Disk>,
    /// Parts, for `simulate --ssd parts`.
    ssds: Vec<Ssd>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct Device {
    /// As in a URL.
    name: &'static str,
    /// What it is.
    what: &'static str,
    /// Requests that the device starts at the same time.
    channels: usize,
    /// Of reads.
    read: Line,
    /// Of writes.
    write: Line,
}

/// Time of one request = startup + bytes x s_per_byte.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct Line {
    /// Startup of a sequential access.
    sequential_s: f64,
    /// Startup of a random access.
    random_s: f64,
    /// Transfer time per byte.
    s_per_byte: f64,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct Link {
    /// As in a URL.
    name: &'static str,
    /// What it is.
    what: &'static str,
    /// Seconds for a message.
    e_s: f64,
    /// Seconds for a byte.
    t_s_per_byte: f64,
}

/// The mechanics of a disk, for `simulate --disk mechanical`.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct Disk {
    /// The device.
    name: &'static str,
    /// What is modelled.
    what: &'static str,
    /// Seeks, rates, cache.
    parameters: DiskSpec,
}

/// The parts of an SSD, for `simulate --ssd parts`.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct Ssd {
    /// The device.
    name: &'static str,
    /// What is modelled.
    what: &'static str,
    /// Dies, pages, rates.
    parameters: FlashSpec,
}

impl From<&Service> for Line {
    fn from(service: &Service) -> Self {
        Self {
            sequential_s: service.startup_s,
            random_s: service.random_startup_s,
            s_per_byte: service.transfer_s_per_byte,
        }
    }
}

pub(crate) fn run(context: &Context, _: DevicesArgs) -> Result<Verdict> {
    let listed = Listed {
        devices: DEVICES
            .iter()
            .map(|device| Device {
                name: device.name,
                what: device.what,
                channels: device.spec.channels(),
                read: device.spec.service(Direction::Read).into(),
                write: device.spec.service(Direction::Write).into(),
            })
            .collect(),
        links: LINKS
            .iter()
            .map(|link| Link {
                name: link.name,
                what: link.what,
                e_s: link.spec.message_s,
                t_s_per_byte: link.spec.transfer_s_per_byte,
            })
            .collect(),
        disks: DISKS.iter().map(|disk| Disk { name: disk.name, what: disk.what, parameters: disk.spec }).collect(),
        ssds: DRIVES.iter().map(|ssd| Ssd { name: ssd.name, what: ssd.what, parameters: ssd.spec }).collect(),
    };
    if context.json {
        context.object(&listed)?;
    } else {
        context.line(text(&listed))?;
    }
    Ok(Verdict::Done)
}

fn text(listed: &Listed) -> String {
    let milliseconds = |seconds: f64| format!("{:.3}", seconds * 1e3);
    let rate = |s_per_byte: f64| format!("{:.0}", 1.0 / s_per_byte / 1e6);
    let mut table = Table::new(&["device", "", ">sequential ms", ">random ms", ">MB/s", ">channels", "what it is"]);
    for device in &listed.devices {
        for (direction, line) in [("read", &device.read), ("write", &device.write)] {
            let first = direction == "read";
            table.row([
                if first { device.name } else { "" }.to_owned(),
                direction.to_owned(),
                milliseconds(line.sequential_s),
                milliseconds(line.random_s),
                rate(line.s_per_byte),
                device.channels.to_string(),
                if first { device.what } else { "" }.to_owned(),
            ]);
        }
    }
    let mut links = Table::new(&["link", ">e ms", ">MB/s", "what it is"]);
    for link in &listed.links {
        links.row([link.name.to_owned(), milliseconds(link.e_s), rate(link.t_s_per_byte), link.what.to_owned()]);
    }
    format!("{table}\n{links}\n{}\n{}", disks(&listed.disks), ssds(&listed.ssds))
}

fn disks(disks: &[Disk]) -> Table {
    let ms = |seconds: f64| format!("{:.1}", seconds * 1e3);
    let mb = |rate: f64| format!("{:.0}", rate / 1e6);
    let mut table = Table::new(&[
        "mechanical disk",
        ">rpm",
        ">track ms",
        ">seek ms",
        ">full ms",
        ">outer MB/s",
        ">inner MB/s",
        ">cache",
        "what is modelled",
    ]);
    for disk in disks {
        let spec = &disk.parameters;
        table.row([
            disk.name.to_owned(),
            format!("{:.0}", spec.revolutions_per_s * 60.0),
            ms(spec.track_to_track_s),
            ms(spec.average_seek_s),
            ms(spec.full_stroke_s),
            mb(spec.outer_bytes_per_s),
            mb(spec.inner_bytes_per_s),
            bytes(spec.segments as u64 * spec.segment_bytes),
            disk.what.to_owned(),
        ]);
    }
    table
}

fn ssds(ssds: &[Ssd]) -> Table {
    let us = |seconds: f64| format!("{:.0}", seconds * 1e6);
    let mut table = Table::new(&[
        "SSD in parts",
        ">dies",
        ">page",
        ">read us",
        ">program us",
        ">erase us",
        ">capacity",
        ">flash",
        "what is modelled",
    ]);
    for ssd in ssds {
        let spec = &ssd.parameters;
        table.row([
            ssd.name.to_owned(),
            format!("{} x {}", spec.channels, spec.dies_per_channel),
            bytes(spec.page_bytes),
            us(spec.read_page_s),
            us(spec.program_page_s),
            us(spec.erase_block_s),
            bytes(spec.capacity_bytes),
            bytes(spec.physical_bytes),
            ssd.what.to_owned(),
        ]);
    }
    table
}
