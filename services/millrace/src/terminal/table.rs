//! Prints rows in aligned columns.

use std::io::{self, Write};

/// Rows of a page: its rows set the widths of its columns.
const ROWS_MAX: usize = 1_000;

pub(crate) type Column = (&'static str, Align);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table that prints its rows page by page, so that a long list appears before its end.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    has_head: bool,
}

impl Table {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new(), has_head: false }
    }

    /// `row` has a cell for each column.
    pub(crate) fn push(&mut self, out: &mut impl Write, row: Vec<String>) -> io::Result<()> {
        self.rows.push(row);
        if self.rows.len() < ROWS_MAX { Ok(()) } else { self.flush(out) }
    }

    /// Prints the rows pushed since the last page; the head comes once, above the first page.
    pub(crate) fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let head: Vec<String> = self.columns.iter().map(|(head, _)| (*head).into()).collect();
        let rows = std::mem::take(&mut self.rows);
        let width = |column: usize| {
            let cells = rows.iter().chain([&head]).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let head = (!std::mem::replace(&mut self.has_head, true)).then_some(&head);
        for row in head.into_iter().chain(&rows) {
            let mut line = String::new();
            for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(&self.columns) {
                match align {
                    Align::Left => line += &format!("{cell:<width$}  "),
                    Align::Right => line += &format!("{cell:>width$}  "),
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_the_head_comes_once() {
        let mut table = Table::new(vec![("NAME", Align::Left), ("N", Align::Right), ("LAST", Align::Left)]);
        let mut out = Vec::new();
        table.flush(&mut out).unwrap();
        assert!(out.is_empty());
        for (name, number) in [("é", "1"), ("longer", "1,000")] {
            table.push(&mut out, vec![name.into(), number.into(), String::new()]).unwrap();
        }
        table.flush(&mut out).unwrap();
        table.push(&mut out, vec!["a".into(), "2".into(), "x".into()]).unwrap();
        table.flush(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "NAME        N  LAST\né           1\nlonger  1,000\na     2  x\n");
    }
}
