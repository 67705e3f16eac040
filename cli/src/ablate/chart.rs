//! Agreement over bits a weight, as SVG.

use crate::exit::Exit;
use crate::failure::Failure;
use plotters::prelude::*;
use zen_edge_forge::ablate::{Entry, Report};

const SIZE: (u32, u32) = (900, 560);

/// Families of schemes, with colours that a colour-blind reader tells apart (Okabe and Ito).
const FAMILIES: [(&str, RGBColor); 4] = [
    ("fp16", RGBColor(0, 0, 0)),
    ("int", RGBColor(0, 114, 178)),
    ("int, rotated", RGBColor(204, 121, 167)),
    ("GGUF types", RGBColor(213, 94, 0)),
];

fn family(scheme: &str) -> usize {
    match scheme {
        "fp16" => 0,
        _ if !scheme.starts_with("int") => 3,
        _ if scheme.split('-').any(|part| part == "rot") => 2,
        _ => 1,
    }
}

/// A scheme's height with its interval: the share of prompts with the same task, or the mean cosine without heads.
fn height(entry: &Entry) -> [f64; 3] {
    let all = &entry.comparison.all;
    match all.task {
        Some(share) => [share.low, share.value, share.high].map(|value| 100.0 * value),
        None => {
            let half = 1.96 * all.cosine.standard_error;
            [all.cosine.mean - half, all.cosine.mean, (all.cosine.mean + half).min(1.0)]
        }
    }
}

/// The picture.
///
/// # Errors
/// What the drawing library says.
pub fn svg(report: &Report) -> Result<String, Failure> {
    let mut text = String::new();
    let drawn = draw(&SVGBackend::with_string(&mut text, SIZE).into_drawing_area(), report);
    drawn.map_err(|error| Failure::new(Exit::Other, format!("the chart cannot be drawn: {error}")))?;
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(area: &Area<'_>, report: &Report) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    area.fill(&WHITE)?;
    let decides = report.routes.is_some();
    let heights: Vec<[f64; 3]> = report.schemes.iter().map(height).collect();
    let top = if decides { 100.0 } else { 1.0 };
    let low = heights.iter().map(|[low, ..]| *low).fold(top, f64::min);
    let least = low - 0.08 * (top - low).max(top * 1e-6);
    let most_bits = report.schemes.iter().map(|entry| entry.bits_per_weight).fold(4.0, f64::max) * 1.1;
    let title = format!("{}: {} prompts", report.file.file, report.prompts.n);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..most_bits, least..top + 0.04 * (top - least))?;
    chart
        .configure_mesh()
        .x_desc("bits a weight, scales counted")
        .y_desc(if decides { "prompts with the same task, %" } else { "mean cosine" })
        .light_line_style(WHITE)
        .draw()?;
    for (at, (name, colour)) in FAMILIES.into_iter().enumerate() {
        let members: Vec<(&Entry, [f64; 3])> = report
            .schemes
            .iter()
            .zip(heights.iter().copied())
            .filter(|(entry, _)| family(&entry.scheme) == at)
            .collect();
        if members.is_empty() {
            continue;
        }
        chart.draw_series(members.iter().map(|(entry, [low, _, high])| {
            let x = entry.bits_per_weight;
            PathElement::new(vec![(x, *low), (x, *high)], colour.mix(0.5))
        }))?;
        chart
            .draw_series(members.iter().map(|(entry, [_, value, _])| {
                EmptyElement::at((entry.bits_per_weight, *value))
                    + Circle::new((0, 0), 4, colour.filled())
                    + Text::new(entry.scheme.clone(), (7, -6), ("sans-serif", 11).into_font().color(&colour))
            }))?
            .label(name)
            .legend(move |(x, y)| Circle::new((x + 8, y), 4, colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .border_style(BLACK.mix(0.3))
        .background_style(WHITE.mix(0.8))
        .draw()?;
    area.present()
}
