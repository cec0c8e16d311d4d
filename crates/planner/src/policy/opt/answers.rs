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
            shape.capacity_share.iter().zip(&prices.capacity).map(|(share, price)| share * price).sum()
        };
        let capacity: Vec<f64> = self.shapes.iter().map(shares).collect();
        let starts: Vec<usize> = (0..self.items.len()).step_by(CHUNK).collect();
        let chunks: Vec<Vec<u16>> = starts
            .into_par_iter()
            .map(|start| {
                let mut rows = vec![0.0; self.rows];
                (start..(start + CHUNK).min(self.items.len()))
                    .map(|item| {
                        self.rows_seen(item, prices, &mut rows);
                        self.cheapest(item, &rows, &capacity, |shape| allowed[shape])
                            .or_else(|| self.cheapest(item, &rows, &capacity, |_| true))
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

    /// With one, two or three kinds of servers the loop over the rows has a known length: most of the search's time is spent here.
    fn cheapest(&self, item: usize, rows: &[f64], capacity: &[f64], open: impl Fn(usize) -> bool) -> Option<u16> {
        let (shapes, loads_s) = self.options_with_loads(item);
        match self.rows {
            3 => least(shapes, loads_s.as_chunks::<4>().0, rows, capacity, self.items[item].bytes(), open),
            5 => least(shapes, loads_s.as_chunks::<6>().0, rows, capacity, self.items[item].bytes(), open),
            7 => least(shapes, loads_s.as_chunks::<8>().0, rows, capacity, self.items[item].bytes(), open),
            _ => {
                let cost_s = |(shape, load_s): (&u16, &[f32])| {
                    let (fixed_s, load_s) = load_s.split_last().expect("rows and the fixed part");
                    let stations: f64 = load_s.iter().zip(rows).map(|(load, price)| f64::from(*load) * price).sum();
                    stations + capacity[usize::from(*shape)] * self.items[item].bytes() + f64::from(*fixed_s)
                };
                let options = shapes.iter().zip(loads_s.chunks(self.rows + 1)).enumerate();
                let costs = options
                    .filter(|(_, (shape, _))| open(usize::from(**shape)))
                    .map(|(option, with_load)| (cost_s(with_load), option as u16));
                costs.reduce(|least, one| if one.0 < least.0 { one } else { least }).map(|(_, option)| option)
            }
        }
    }
}

/// The option of least priced cost, as [`Program::answers`] has it; a load is rows and then the fixed part.
fn least<const WIDTH: usize>(
    shapes: &[u16],
    loads_s: &[[f32; WIDTH]],
    rows: &[f64],
    capacity: &[f64],
    bytes: f64,
    open: impl Fn(usize) -> bool,
) -> Option<u16> {
    let mut prices = [0.0; WIDTH];
    prices[..WIDTH - 1].copy_from_slice(rows);
    let mut least: Option<(f64, u16)> = None;
    for (option, (shape, load_s)) in shapes.iter().zip(loads_s).enumerate() {
        let shape = usize::from(*shape);
        if !open(shape) {
            continue;
        }
        let mut stations = 0.0;
        for row in 0..WIDTH - 1 {
            stations += f64::from(load_s[row]) * prices[row];
        }
        let cost_s = stations + capacity[shape] * bytes + f64::from(load_s[WIDTH - 1]);
        if least.is_none_or(|(known_s, _)| cost_s < known_s) {
            least = Some((cost_s, option as u16));
        }
    }
    least.map(|(_, option)| option)
}
