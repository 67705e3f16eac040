//! `zen-edge compare`: several devices' records side by side.

mod chart;
mod page;
mod rows;

use crate::bench::show::{figure, markdown_row};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, plain, right, table};
use rows::{Line, lines};
use std::path::{Path, PathBuf};
use zen_edge_core::bench::{MOST_BYTES, Record, RecordError};

/// The arguments of `zen-edge compare`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Records: what `zen-edge bench -o` and the page's benchmark wrote
    #[arg(required = true, value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Write a page with table and chart
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the chart
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print the table in Markdown
    #[arg(long)]
    md: bool,
}

/// A record and what its columns are called.
pub struct Named {
    pub name: String,
    pub record: Record,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let records = args.records.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let records = named(records);
    let lines = lines(&records);
    if lines.is_empty() {
        return Err(Failure::new(Exit::Format, "the records hold no figures".to_owned()));
    }
    if let Some(path) = &args.svg {
        write(path, &chart::svg(&lines)?)?;
    }
    if let Some(path) = &args.html {
        write(path, &page::html(&records, &lines)?)?;
    }
    if args.md {
        output::line(&markdown_row(&rows::HEADER));
        output::line("|---|---|---|--:|--:|--:|--:|");
        lines.iter().for_each(|line| output::line(&markdown_row(&line.cells())));
        return Ok(());
    }
    people(&records, &lines).iter().for_each(|text| output::line(text));
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::unwritable(path, &error))
}

fn read(path: &Path) -> Result<(PathBuf, Record), Failure> {
    let about = std::fs::metadata(path).map_err(|error| Failure::file(path, &error))?;
    let too_large = usize::try_from(about.len()).map_or(true, |len| len > MOST_BYTES);
    let fail =
        |error: RecordError| Failure::new(Exit::Format, plain(&format!("{}: {error}", path.display())));
    if too_large {
        return Err(fail(RecordError::TooLarge {
            bytes: usize::try_from(about.len()).unwrap_or(usize::MAX),
        }));
    }
    let bytes = std::fs::read(path).map_err(|error| Failure::file(path, &error))?;
    Ok((path.to_path_buf(), Record::parse(&String::from_utf8_lossy(&bytes)).map_err(fail)?))
}

/// A record is called what its owner called it, else by its file.
fn named(records: Vec<(PathBuf, Record)>) -> Vec<Named> {
    records
        .into_iter()
        .map(|(path, record)| {
            let own =
                Some(plain(&record.device.name)).filter(|name| !name.is_empty() && name != "this device");
            let file = || path.file_stem().map_or_else(String::new, |stem| plain(&stem.to_string_lossy()));
            let name: String = own.unwrap_or_else(file).chars().take(40).collect();
            Named { name, record }
        })
        .collect()
}

/// What a record is of, in a line.
pub fn about(named: &Named) -> String {
    let Record { engine, device, model, date, .. } = &named.record;
    let on: Vec<String> = [device.cpu.as_ref(), device.browser.as_ref(), Some(&device.platform)]
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty())
        .map(|text| text.chars().take(120).collect())
        .collect();
    let model_name = model.name.as_deref().unwrap_or(&model.architecture);
    plain(&format!(
        "{}: {} ({} layers of {}) on {}; zen-edge {}, {}; {date}",
        named.name,
        model_name,
        model.layers,
        model.hidden_size,
        on.join(", "),
        engine.version,
        engine.build,
    ))
}

/// The lines for a person: who, the table with its bars, the warnings.
fn people(records: &[Named], lines: &[Line]) -> Vec<String> {
    let mut out: Vec<String> = records.iter().map(about).collect();
    let mut cells = table(&rows::HEADER);
    let mut header: Vec<String> = rows::HEADER.iter().map(|cell| (*cell).to_owned()).collect();
    header.push(String::new());
    cells.set_header(header);
    for line in lines {
        let mut row: Vec<String> = line.cells().into();
        row.push(chart::bar(line.relative(lines)));
        cells.add_row(row);
    }
    right(&mut cells, 3..7);
    out.push(String::new());
    out.extend(output::rows(&cells));
    out.push(
        "a bar is a figure beside the largest of its test; of milliseconds the shorter is the better"
            .to_owned(),
    );
    for Named { name, record } in records {
        out.extend(
            record.warnings.iter().map(|warning| plain(&format!("note on {name}: {}", warning.message))),
        );
    }
    if records.iter().any(|one| one.record.model.multiply_adds != records[0].record.model.multiply_adds) {
        out.push(format!(
            "note: the records are of different backbones ({} multiply-adds a token); compare rows of one",
            records
                .iter()
                .map(|one| format!("{} M", figure(one.record.model.multiply_adds as f64 / 1e6)))
                .collect::<Vec<_>>()
                .join(", ")
        ));
    }
    out
}
