//! Tables for people: columns as wide as their content, numbers to the right.

use crate::messages::printable;
use std::fmt;

/// To which side a column's cells align.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows of text under a line of headings. Prints nothing but the headings when there are no rows.
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Headings that start with `>` head columns that align to the right.
    pub fn new(headings: &[&'static str]) -> Self {
        let columns = headings
            .iter()
            .map(|heading| match heading.strip_prefix('>') {
                Some(heading) => (heading, Align::Right),
                None => (*heading, Align::Left),
            })
            .collect();
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    ///
    /// Unless it has as many cells as there are headings.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl fmt::Display>) {
        let cells: Vec<String> =
            cells.into_iter().map(|cell| printable(&cell.to_string(), false).into_owned()).collect();
        assert_eq!(cells.len(), self.columns.len(), "a row has one cell for each heading");
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings: Vec<String> = self.columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&headings).chain(&self.rows).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        for (number, line) in lines.iter().enumerate() {
            let mut text = String::new();
            for ((cell, width), (_, align)) in line.iter().zip(&widths).zip(&self.columns) {
                if !text.is_empty() {
                    text.push_str("  ");
                }
                let gap = " ".repeat(width - cell.chars().count());
                match align {
                    Align::Left => text.extend([cell.as_str(), &gap]),
                    Align::Right => text.extend([gap.as_str(), cell]),
                }
            }
            if number > 0 {
                f.write_str("\n")?;
            }
            f.write_str(text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["name", ">size", "where"]);
        table.row(["a", "1", "here"]);
        table.row(["long", "1234567", ""]);
        assert_eq!(table.to_string(), "name     size  where\na           1  here\nlong  1234567");
    }
}
