//! Tables of text. What comes from clients is escaped before it meets a terminal.

use serde_json::Value;
use tidegate_program::harmless;

use super::paint::by_state;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Characters of a cell; longer ones are cut. Client identifiers may have 256.
const CELL_MAX: usize = 40;

/// Characters of the last column, however narrow the terminal is.
const LAST_COLUMN_MIN: usize = 20;

/// A column: its head, what is shown of a row there, and how that is written.
pub(crate) type Column = (&'static str, Align, &'static str, fn(&Value) -> String);

#[derive(Debug)]
pub(crate) struct TextTable {
    align: Vec<Align>,
    /// The column that has states, whose words have colours.
    states: Option<usize>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        let head = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let states = columns.iter().position(|(head, _)| *head == "STATE");
        Self { align: columns.iter().map(|(_, align)| *align).collect(), states, rows: vec![head] }
    }

    /// A row for each of an answer's objects.
    pub(crate) fn of(columns: &[Column], rows: &[Value]) -> Self {
        let heads: Vec<(&str, Align)> = columns.iter().map(|(head, align, ..)| (*head, *align)).collect();
        let mut table = Self::new(&heads);
        for row in rows {
            table.row(columns.iter().map(|(_, _, field, written)| written(&row[*field])));
        }
        table
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// One line for each row, columns two spaces apart.
    pub(crate) fn text(&self) -> String {
        self.text_within(None)
    }

    /// The same, with the last column broken into lines where the text would be wider than this.
    pub(crate) fn text_within(&self, columns: Option<usize>) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.align.len()).map(width).collect();
        let mut text = String::new();
        let indent: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
        let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(indent).max(LAST_COLUMN_MIN));
        for row in &self.rows {
            let (row, rest) = broken(row, room);
            let cells = row.iter().zip(&widths).zip(&self.align).enumerate();
            let cells = cells.map(|(column, ((cell, width), align))| match align {
                Align::Left if self.states == Some(column) => by_state(cell, &format!("{cell:<width$}")),
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            text.push_str(line.trim_end());
            text.push('\n');
            for line in rest {
                text.extend([" ".repeat(indent).as_str(), &line, "\n"]);
            }
        }
        text
    }
}

/// A row whose last cell ends where there is no more room, and the lines that follow.
fn broken(row: &[String], room: usize) -> (Vec<String>, Vec<String>) {
    let mut row = row.to_vec();
    let Some(last) = row.last_mut().filter(|last| last.chars().count() > room) else { return (row, Vec::new()) };
    let mut lines: Vec<String> = vec![String::new()];
    for word in last.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= room {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    *last = lines.remove(0);
    (row, lines)
}

/// A value as a cell of any length.
pub(crate) fn whole(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => harmless(text),
        other => other.to_string(),
    }
}

/// A value as a cell.
pub(crate) fn shown(value: &Value) -> String {
    let text = whole(value);
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

/// A number of things, one of them without the last letter.
pub(crate) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// A time as one says it.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_and_counts_are_said_as_one_says_them() {
        assert_eq!(["1 shard", "2 shards"], [counted(1, "shard"), counted(2, "shard")].each_ref().map(String::as_str));
        assert_eq!([30, 150, 7300, 200_000].map(span), ["30 s", "2 min", "2 h 1 min", "2 d 7 h"].map(str::to_owned));
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = TextTable::new(&[("NAME", Align::Left), ("N", Align::Right)]);
        table.row(["a".to_owned(), "10".to_owned()]);
        table.row(["longer".to_owned(), "1".to_owned()]);
        assert_eq!(table.text(), "NAME     N\na       10\nlonger   1\n");
    }

    #[test]
    fn the_last_column_is_broken_where_the_terminal_ends() {
        let mut table = TextTable::new(&[("N", Align::Right), ("MEANING", Align::Left)]);
        table.row(["1".to_owned(), "no room was left in the queue".to_owned()]);
        assert_eq!(table.text_within(Some(24)), "N  MEANING\n1  no room was left in\n   the queue\n");
        assert!(table.text().ends_with("1  no room was left in the queue\n"));
    }

    #[test]
    fn strangers_text_is_escaped_and_cut() {
        assert_eq!(shown(&json!("a\u{1b}[2Jb")), "a\\u{1b}[2Jb");
        assert_eq!(shown(&json!("x".repeat(300))).chars().count(), CELL_MAX);
        assert_eq!(shown(&json!("the receiver's \"x\"")), "the receiver's \"x\"", "quotes harm nobody");
        assert_eq!((shown(&Value::Null), number(&json!(0.123))), ("-".to_owned(), "0.12".to_owned()));
    }
}
