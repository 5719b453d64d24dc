//! Tables of text. What comes from clients is escaped before it meets a terminal.

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Characters of a cell; longer ones are cut. Client identifiers may have 256.
const CELL_MAX: usize = 40;

#[derive(Debug)]
pub(crate) struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        let head = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        Self { align: columns.iter().map(|(_, align)| *align).collect(), rows: vec![head] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// One line for each row, columns two spaces apart.
    pub(crate) fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.align.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).zip(&self.align);
            let cells = cells.map(|((cell, width), align)| match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A value as a cell.
pub(crate) fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => return "-".to_owned(),
        Value::String(text) => text.escape_debug().to_string(),
        other => other.to_string(),
    };
    if text.chars().count() <= CELL_MAX {
        return text;
    }
    let mut cut: String = text.chars().take(CELL_MAX - 1).collect();
    cut.push('…');
    cut
}

/// A rate as a cell: three digits that mean something.
pub(crate) fn number(value: &Value) -> String {
    match value.as_f64() {
        None => "-".to_owned(),
        Some(value) if value >= 100.0 || value == 0.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("NAME", Align::Left), ("N", Align::Right)]);
        table.row(["a".to_owned(), "10".to_owned()]);
        table.row(["longer".to_owned(), "1".to_owned()]);
        assert_eq!(table.text(), "NAME     N\na       10\nlonger   1\n");
    }

    #[test]
    fn strangers_text_is_escaped_and_cut() {
        assert_eq!(shown(&json!("a\u{1b}[2Jb")), "a\\u{1b}[2Jb");
        assert_eq!(shown(&json!("x".repeat(300))).chars().count(), CELL_MAX);
        assert_eq!((shown(&Value::Null), number(&json!(0.123))), ("-".to_owned(), "0.12".to_owned()));
    }
}
