//! What the items of one window answer to prices where nothing can move: the same as `paths.rs`, without paths.

use super::paths::Prices;
use super::program::Program;
use rayon::prelude::*;

/// Items that are looked at together.
const CHUNK: usize = 512;

impl Program {
    /// The option of least priced cost of every item, among those whose shapes are allowed (all, where none is); of equals the first.
    /// For one window without moves only.
    pub(crate) fn answers(&self, prices: &Prices, allowed: &[bool]) -> Vec<u16> {
        let shares = |shape: &super::shapes::Shape| -> f64 {
            shape.room_share.iter().zip(&prices.room).map(|(share, price)| share * price).sum()
        };
        let room: Vec<f64> = self.shapes.iter().map(shares).collect();
        let starts: Vec<usize> = (0..self.items.len()).step_by(CHUNK).collect();
        let chunks: Vec<Vec<u16>> = starts
            .into_par_iter()
            .map(|start| {
                let mut rows = vec![0.0; self.rows];
                (start..(start + CHUNK).min(self.items.len()))
                    .map(|item| {
                        self.rows_seen(item, prices, &mut rows);
                        self.cheapest(item, &rows, &room, |shape| allowed[shape])
                            .or_else(|| self.cheapest(item, &rows, &room, |_| true))
                            .expect("an item has options")
                    })
                    .collect()
            })
            .collect();
        chunks.concat()
    }

    fn rows_seen(&self, item: usize, prices: &Prices, rows: &mut [f64]) {
        rows.fill(0.0);
        for (share, of_period) in self.items[item].shares.iter().zip(prices.rows.chunks(self.rows)) {
            rows.iter_mut().zip(of_period).for_each(|(sum, price)| *sum += share * price);
        }
        rows[self.rows - 1] += prices.haste;
    }

    fn cheapest(&self, item: usize, rows: &[f64], room: &[f64], open: impl Fn(usize) -> bool) -> Option<u16> {
        let bytes = self.items[item].bytes();
        let mut least: Option<(f64, u16)> = None;
        for (option, (shape, load_s)) in self.options_with_loads(item).enumerate() {
            if !open(shape) {
                continue;
            }
            let stations: f64 = load_s.iter().zip(rows).map(|(load, price)| f64::from(*load) * price).sum();
            let cost_s = stations + room[shape] * bytes + f64::from(load_s[self.rows]);
            if least.is_none_or(|(known_s, _)| cost_s < known_s) {
                least = Some((cost_s, option as u16));
            }
        }
        least.map(|(_, option)| option)
    }
}
