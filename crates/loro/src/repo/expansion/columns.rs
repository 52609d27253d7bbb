//! Tables of columns, as `loro` writes them. A column is a list of runs, so that five bytes may stand for
//! a thousand million rows.

use super::{Left, Oversized, take, take_bytes, take_number};

/// About what `loro` allocates for a position in a tree, beside its bytes.
const POSITION: u64 = 64;

/// How a column's values are written.
#[derive(Clone, Copy)]
pub(super) enum Values {
    /// Runs of numbers.
    Numbers,
    /// Runs of bytes.
    Bytes,
    /// The lengths of runs, of no and yes in turn.
    Flags,
    /// Their count, then the numbers one by one.
    Plain,
}

/// The rows of a table: the longest of its columns.
pub(super) fn rows(columns: &[&[u8]], kinds: &[Values]) -> Result<u64, Oversized> {
    let mut most = 0;
    for (column, values) in columns.iter().zip(kinds) {
        most = most.max(length(column, *values)?);
    }
    Ok(most)
}

/// How many values a column has.
fn length(column: &[u8], values: Values) -> Result<u64, Oversized> {
    let (mut rest, mut sum) = (column, 0_u64);
    match values {
        Values::Flags => {
            while !rest.is_empty() {
                sum = sum.saturating_add(take_number(&mut rest)?);
            }
        }
        Values::Plain if rest.is_empty() => {}
        Values::Plain => {
            sum = take_number(&mut rest)?;
            // Each value has at least one byte.
            if sum > rest.len() as u64 {
                return Err(Oversized::Malformed);
            }
        }
        Values::Numbers | Values::Bytes => {
            let mut runs = Runs::new(column, values);
            while let Some((count, _)) = runs.next()? {
                sum = sum.saturating_add(count);
            }
        }
    }
    Ok(sum)
}

/// The columns of the only table of a record.
pub(super) fn open_only_table(record: &[u8], columns: usize) -> Result<Vec<&[u8]>, Oversized> {
    let mut rest = record;
    if take_number(&mut rest)? != 1 {
        return Err(Oversized::Malformed);
    }
    open_table(&mut rest, columns)
}

/// The columns of the next table.
pub(super) fn open_table<'a>(
    rest: &mut &'a [u8],
    columns: usize,
) -> Result<Vec<&'a [u8]>, Oversized> {
    if take_number(rest)? != columns as u64 {
        return Err(Oversized::Malformed);
    }
    (0..columns).map(|_| take_bytes(rest)).collect()
}

/// Checks positions in a tree: each is a prefix of the one before it, plus some bytes.
pub(super) fn check_positions(table: &[u8], left: &mut Left) -> Result<(), Oversized> {
    if table.is_empty() {
        return Ok(());
    }
    let columns = open_only_table(table, 2)?;
    let (mut runs, mut rest) = (Runs::new(columns[0], Values::Numbers), columns[1]);
    let count = take_number(&mut rest)?;
    let (mut run, mut last) = ((0, 0), 0_u64);
    for _ in 0..count {
        if run.0 == 0 {
            run = runs.next()?.ok_or(Oversized::Malformed)?;
        }
        run.0 -= 1;
        if run.1 > last {
            return Err(Oversized::Malformed);
        }
        last = run.1 + take_bytes(&mut rest)?.len() as u64;
        left.take(1, last.saturating_add(POSITION))?;
    }
    Ok(())
}

/// The runs of a column.
pub(super) struct Runs<'a> {
    rest: &'a [u8],
    values: Values,
    /// How many of the next values are single ones.
    single: u64,
}

impl<'a> Runs<'a> {
    pub(super) fn new(column: &'a [u8], values: Values) -> Self {
        Self {
            rest: column,
            values,
            single: 0,
        }
    }

    /// The next run of equal values: how many, and the value.
    pub(super) fn next(&mut self) -> Result<Option<(u64, u64)>, Oversized> {
        if self.single > 0 {
            self.single -= 1;
            return Ok(Some((1, self.value()?)));
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        // Positive: this many equal values; negative: this many single ones. Zero is never written.
        match take_number(&mut self.rest)? {
            0 => Err(Oversized::Malformed),
            count if count & 1 == 0 => Ok(Some((count >> 1, self.value()?))),
            count => {
                self.single = count >> 1;
                Ok(Some((1, self.value()?)))
            }
        }
    }

    fn value(&mut self) -> Result<u64, Oversized> {
        match self.values {
            Values::Bytes => Ok(u64::from(take(&mut self.rest, 1)?[0])),
            _ => take_number(&mut self.rest),
        }
    }
}
