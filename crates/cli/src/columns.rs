//! Tables in columns, which fit the terminal: names are shortened, the last column is broken into lines,
//! and columns that still do not fit go to a second line.

use crate::terminal::wrap;

/// How a column is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// Whether its cells are right-aligned.
    pub(crate) right: bool,
    /// Whether its cells may be shortened: they are names, of which a part tells enough.
    pub(crate) name: bool,
}

impl Column {
    pub(crate) const fn text(title: &'static str) -> Self {
        Self {
            title,
            right: false,
            name: false,
        }
    }

    pub(crate) const fn number(title: &'static str) -> Self {
        Self {
            right: true,
            ..Self::text(title)
        }
    }

    pub(crate) const fn name(title: &'static str) -> Self {
        Self {
            name: true,
            ..Self::text(title)
        }
    }
}

/// Spaces before each column.
const GAP: usize = 2;

/// The indentation of a second line.
const INDENT: usize = 6;

/// The fewest characters of a name.
const NAME: usize = 8;

/// Below this width the last column is not broken within its place, but has lines of its own.
const LAST: usize = 20;

/// Names are shortened until the last column has this width.
const WANTED: usize = 32;

/// The widths of a table's columns. All rows are measured before the first is printed.
pub(crate) struct Table<'a, const N: usize> {
    columns: &'a [Column; N],
    widths: [usize; N],
    /// Whether a column is not empty in some row.
    told: [bool; N],
    limit: Option<usize>,
}

impl<'a, const N: usize> Table<'a, N> {
    pub(crate) fn new(columns: &'a [Column; N], limit: Option<usize>) -> Self {
        Self {
            columns,
            widths: columns.map(|column| column.title.chars().count()),
            told: [false; N],
            limit,
        }
    }

    pub(crate) fn measure(&mut self, cells: &[String; N]) {
        for (index, cell) in cells.iter().enumerate() {
            self.widths[index] = self.widths[index].max(cell.chars().count());
            self.told[index] |= !["", "-", "0"].contains(&cell.as_str());
        }
    }

    /// Decides what is shortened and left out. Call it after the last row was measured.
    pub(crate) fn settle(&mut self) {
        let Some(limit) = self.limit else { return };
        if self.total() <= limit {
            return;
        }
        // Where there is no room, columns that say nothing go first.
        for index in 1..N - 1 {
            if !self.told[index] {
                self.widths[index] = 0;
            }
        }
        let last = self.widths[N - 1].min(WANTED);
        for index in 0..N - 1 {
            let over = (self.total() - self.widths[N - 1] + last).saturating_sub(limit);
            if self.columns[index].name && self.widths[index] > 0 {
                let title = self.columns[index].title.chars().count();
                let least = self.widths[index].min(title.max(NAME));
                self.widths[index] = (self.widths[index] - over.min(self.widths[index])).max(least);
            }
        }
    }

    fn total(&self) -> usize {
        let shown = self.widths.iter().filter(|width| **width > 0);
        shown.map(|width| width + GAP).sum()
    }

    pub(crate) fn header(&self) -> String {
        self.row(self.columns.map(|column| column.title.to_owned()))
    }

    /// A row, in one line or more.
    pub(crate) fn row(&self, cells: [String; N]) -> String {
        let limit = self.limit.unwrap_or(usize::MAX);
        let (mut out, mut used) = (String::new(), 0);
        for (index, cell) in cells.iter().enumerate() {
            let (column, width) = (self.columns[index], self.widths[index]);
            if width == 0 {
                continue;
            }
            let room = limit.saturating_sub(used + GAP);
            if index == N - 1 && !column.right && width > room {
                last(&mut out, cell, used + GAP, room, limit);
                break;
            }
            if used > 0 && width > room {
                out.truncate(out.trim_end().len());
                out.push('\n');
                out.push_str(&" ".repeat(INDENT - GAP));
                used = INDENT - GAP;
            }
            let cell = shortened(cell, width);
            let pad = " ".repeat(width - cell.chars().count());
            out.push_str(&" ".repeat(GAP));
            match column.right {
                true => out.extend([pad.as_str(), &cell]),
                false => out.extend([cell.as_str(), &pad]),
            }
            used += GAP + width;
        }
        out.truncate(out.trim_end().len());
        out
    }
}

/// The last cell, in lines that fit: in its place, or below the row.
fn last(out: &mut String, cell: &str, at: usize, room: usize, limit: usize) {
    if room >= LAST {
        let lines = wrap(cell, Some(room), 0);
        let below = format!("\n{}", " ".repeat(at));
        out.push_str(&" ".repeat(GAP));
        out.push_str(&lines.replace('\n', &below));
    } else if !cell.is_empty() {
        out.truncate(out.trim_end().len());
        let lines = wrap(cell, Some(limit.saturating_sub(INDENT)), 0);
        for line in lines.lines() {
            out.push('\n');
            out.push_str(&" ".repeat(INDENT));
            out.push_str(line);
        }
    }
}

fn shortened(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    let kept: String = cell.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::number("#"),
        Column::name("key"),
        Column::text("digest"),
        Column::text("notes"),
    ];

    fn shown(limit: Option<usize>, rows: &[[&str; 4]]) -> String {
        let rows: Vec<_> = rows.iter().map(|row| row.map(str::to_owned)).collect();
        let mut table = Table::new(&COLUMNS, limit);
        rows.iter().for_each(|row| table.measure(row));
        table.settle();
        let mut text = vec![table.header()];
        text.extend(rows.into_iter().map(|row| table.row(row)));
        text.join("\n")
    }

    #[test]
    fn a_table_fits_its_width() {
        let rows = [
            ["1", "d0c5a7f3b1e94c62", "-", "short"],
            ["22", "d0c5", "-", "a much longer note of several words"],
        ];
        let wide = "   #  key               digest  notes
   1  d0c5a7f3b1e94c62  -       short
  22  d0c5              -       a much longer note of several words";
        assert_eq!(shown(None, &rows), wide);
        assert_eq!(shown(Some(67), &rows), wide);
        let narrow = "   #  key               notes
   1  d0c5a7f3b1e94c62  short
  22  d0c5              a much longer note of several
                        words";
        assert_eq!(shown(Some(56), &rows), narrow);
        let narrower = "   #  key       notes
   1  d0c5a7f…  short
  22  d0c5      a much longer note
                of several words";
        assert_eq!(shown(Some(36), &rows), narrower);
        let below = "   #  key
      notes
   1  d0c5a7f…
      short
  22  d0c5
      a much longer note of
      several words";
        assert_eq!(shown(Some(28), &rows), below);
        for limit in 20..70 {
            let text = shown(Some(limit), &rows);
            assert!(
                text.lines().all(|line| line.chars().count() <= limit),
                "{limit}:\n{text}"
            );
        }
    }
}
