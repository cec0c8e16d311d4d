//! Dual prices of a plan's bound: which stations set it, and what more room would bring.

use super::scale::Scale;
use super::svg::{Anchor, Svg};
use stripewise_layout::ServerClass;
use stripewise_layout::figures::{duration, number};
use stripewise_planner::{PlannedServer, ServerPrices};

/// Neighbouring servers of one class with the same prices.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) class: ServerClass,
    pub(super) servers: usize,
    pub(super) prices: ServerPrices,
}

/// Prices that differ by less than this share of the largest count as one.
const SAME: f64 = 0.005;

/// The servers in cluster order, equal neighbours as one row.
pub(super) fn rows(servers: &[PlannedServer], prices: &[ServerPrices]) -> Vec<Row> {
    let most = |price: fn(&ServerPrices) -> f64| prices.iter().map(price).fold(0.0, f64::max) * SAME;
    let (device, link, capacity) = (most(|p| p.device), most(|p| p.link), most(|p| p.room_s_per_gib));
    let same = |a: &ServerPrices, b: &ServerPrices| {
        (a.device - b.device).abs() <= device
            && (a.link - b.link).abs() <= link
            && (a.room_s_per_gib - b.room_s_per_gib).abs() <= capacity
    };
    let mut rows: Vec<Row> = Vec::new();
    let mut first_name = "";
    for (server, prices) in servers.iter().zip(prices) {
        match rows.last_mut().filter(|row| row.class == server.class && same(&row.prices, prices)) {
            Some(row) => {
                row.servers += 1;
                row.name = format!("{first_name}\u{2013}{}", server.name);
            }
            None => {
                first_name = &server.name;
                rows.push(Row { name: server.name.clone(), class: server.class, servers: 1, prices: *prices });
            }
        }
    }
    rows
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 150.0;
const GAP: f64 = 24.0;
const FIGURE: f64 = 54.0;
const TOP: f64 = 46.0;
const ROW: f64 = 20.0;

/// The unit of room by which prices are told, and its share of a GiB: one that is not worth more than the run takes.
pub(super) fn capacity_unit(rows: &[Row], bound_s: f64) -> (&'static str, f64) {
    let most_s = rows.iter().map(|row| row.prices.room_s_per_gib).fold(0.0, f64::max);
    if most_s > bound_s / 2.0 { ("MiB", 1.0 / 1024.0) } else { ("GiB", 1.0) }
}

/// The chart, with the price of room by one `unit`, a share of a GiB; an empty text when all prices are zero.
pub(super) fn chart(rows: &[Row], (unit, share_of_gib): (&str, f64)) -> String {
    let is_priced = |row: &Row| row.prices.device > 0.0 || row.prices.link > 0.0 || row.prices.room_s_per_gib > 0.0;
    if !rows.iter().any(is_priced) {
        return String::new();
    }
    let share = |value: f64| number((value * 1000.0).round() / 1000.0);
    let columns: [Column<'_>; 3] = [
        ("Device", "s of the run for each s of its work".into(), &|row| row.prices.device, &share),
        ("Link", "s of the run for each s of its work".into(), &|row| row.prices.link, &share),
        (
            "Capacity",
            format!("saved by each {unit} more in all"),
            &|row| row.prices.room_s_per_gib * share_of_gib,
            &duration,
        ),
    ];
    let floor = TOP + ROW * rows.len() as f64;
    let mut svg = Svg::new(WIDTH, floor + 8.0);
    for (row, one) in rows.iter().enumerate() {
        svg.text((LEFT - 10.0, TOP + ROW * row as f64 + 14.0), Anchor::End, "name", &one.name);
    }
    let pitch = (WIDTH - LEFT + GAP) / columns.len() as f64;
    for (at, (title, unit, price, words)) in columns.into_iter().enumerate() {
        let left = LEFT + pitch * at as f64;
        let width = pitch - GAP - FIGURE;
        svg.text((left, 16.0), Anchor::Start, "panel-title", title);
        svg.text((left, 32.0), Anchor::Start, "note", unit);
        svg.line((left, TOP - 2.0), (left, floor + 2.0), "axis");
        let scale = Scale::decimal(rows.iter().map(price).fold(0.0, f64::max), 2.0);
        for (row, one) in rows.iter().enumerate() {
            let (value, y) = (price(one), TOP + ROW * row as f64);
            let length = scale.at(value, width);
            let title = format!("{} of {}: {}", title, one.name, words(value));
            svg.rect([left, y + 3.0, length, ROW - 6.0], &format!("bar c-{}", one.class), &title);
            svg.text((left + length + 5.0, y + 14.0), Anchor::Start, "value", words(value));
        }
    }
    let priced = |row: &&Row| is_priced(row);
    let words = rows.iter().filter(priced).map(|row| {
        let ServerPrices { device, link, room_s_per_gib, .. } = row.prices;
        let space = duration(room_s_per_gib * share_of_gib);
        format!("{}: device {}, link {}, capacity {space} for each {unit}", row.name, share(device), share(link))
    });
    let description = words.collect::<Vec<_>>().join("; ");
    svg.finish("Dual prices of the bound for each server: its device, its link, its capacity", &description)
}

/// Title, unit, the price, its words.
type Column<'a> = (&'a str, String, &'a dyn Fn(&Row) -> f64, &'a dyn Fn(f64) -> String);

/// What sets the bound, the most important first, with its share of the run's time: devices and links of each class.
pub(super) fn busiest(rows: &[Row]) -> Vec<(String, f64)> {
    let mut found: Vec<(String, f64)> = Vec::new();
    type Price = fn(&Row) -> f64;
    let prices: [(&str, Price); 2] = [("device", |row| row.prices.device), ("link", |row| row.prices.link)];
    for class in [ServerClass::Hdd, ServerClass::Ssd] {
        for (kind, price) in prices {
            let priced: Vec<&Row> = rows.iter().filter(|row| row.class == class && price(row) > 0.0).collect();
            let servers: usize = priced.iter().map(|row| row.servers).sum();
            let share = priced.iter().map(|row| price(row) * row.servers as f64).sum();
            match servers {
                0 => {}
                1 => found.push((format!("the {kind} of {}", priced[0].name), share)),
                _ => found.push((format!("the {kind}s of {servers} {class}s"), share)),
            }
        }
    }
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers() -> Vec<PlannedServer> {
        [("hdd0", ServerClass::Hdd), ("hdd1", ServerClass::Hdd), ("hdd2", ServerClass::Hdd), ("ssd0", ServerClass::Ssd)]
            .map(|(name, class)| PlannedServer { name: name.into(), class, room_bytes: None, used_bytes: 0 })
            .into()
    }

    fn price(device: f64, link: f64, room_s_per_gib: f64) -> ServerPrices {
        ServerPrices { room_s_per_gib, device, link }
    }

    #[test]
    fn equal_neighbours_of_a_class_share_a_row() {
        let prices = [price(0.2, 0.0, 0.0), price(0.2004, 0.0, 0.0), price(0.1, 0.0, 0.0), price(0.0, 0.3, 2.5)];
        let rows = rows(&servers(), &prices);
        let names: Vec<(&str, usize)> = rows.iter().map(|row| (row.name.as_str(), row.servers)).collect();
        assert_eq!(names, [("hdd0\u{2013}hdd1", 2), ("hdd2", 1), ("ssd0", 1)]);
        let busiest: Vec<(String, f64)> = busiest(&rows);
        assert_eq!(
            busiest.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["the devices of 3 hdds", "the link of ssd0"]
        );
        assert!((busiest[0].1 - 0.5).abs() < 1e-3);
        assert_eq!(capacity_unit(&rows, 6.0), ("GiB", 1.0));
        assert_eq!(capacity_unit(&rows, 4.0), ("MiB", 1.0 / 1024.0));
        let chart = chart(&rows, ("GiB", 1.0));
        assert!(
            chart.contains("Capacity of ssd0: 2.5 s")
                && chart.contains("each GiB more")
                && chart.contains("Link of ssd0: 0.3"),
            "{chart}"
        );
    }

    #[test]
    fn without_prices_there_is_no_picture() {
        assert_eq!(chart(&rows(&servers(), &[price(0.0, 0.0, 0.0); 4]), ("GiB", 1.0)), "");
    }
}
