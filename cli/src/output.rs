//! Printing: colours only where they are seen, nothing that a file claims as a command to the terminal.

use std::io::{ErrorKind, Write};

/// Prints a line to standard output. Colours fall off where it is no terminal or `NO_COLOR` is set.
///
/// A reader that has gone (`zen-edge … | head -1`) ends the program quietly, as it does with other tools.
pub fn line(text: &str) {
    written(writeln!(anstream::stdout(), "{text}"));
}

/// Prints a value as one line of JSON to standard output.
pub fn json(value: &impl serde::Serialize) {
    let mut out = std::io::stdout().lock();
    let text = serde_json::to_string(value).map_err(std::io::Error::from);
    written(text.and_then(|text| writeln!(out, "{text}")).and_then(|()| out.flush()));
}

fn written(result: std::io::Result<()>) {
    match result {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            anstream::eprintln!("error: cannot write to standard output: {error}");
            std::process::exit(i32::from(crate::exit::Exit::Other as u8));
        }
    }
}

/// A table without frames, as wide as the terminal allows.
pub fn table(header: &[&str]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table
        .load_style(comfy_table::presets::NOTHING)
        .set_content_arrangement(comfy_table::ContentArrangement::Dynamic)
        .set_header(header.iter().copied());
    table
}

/// A table's lines, without the blanks at their ends.
pub fn rows(table: &comfy_table::Table) -> impl Iterator<Item = String> {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().into_iter()
}

/// Sets columns of figures to the right.
pub fn right(table: &mut comfy_table::Table, columns: std::ops::Range<usize>) {
    for at in columns {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
}

/// Bytes for people, in the units that disks and hubs use (1 MB = 10⁶ bytes).
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "kB", "MB", "GB", "TB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `text` with control characters made visible: a name out of a file must not steer the terminal.
pub fn plain(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(999), "999 bytes");
        assert_eq!(bytes(397_000_000), "397.0 MB");
        assert_eq!(bytes(999_999_999), "1.0 GB");
        assert_eq!(bytes(u64::MAX), "18446744.1 TB");
    }

    #[test]
    fn names_do_not_steer_the_terminal() {
        assert_eq!(plain("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(plain("é ok"), "é ok");
    }
}
