//! The plot of cumulative regret.

use super::data::PriorKind;
use super::replay::{Learn, Policy};
use super::report::{Experiment, Figure, Report, Row};
use plotters::prelude::*;
use std::path::Path;

const SIZE: (u32, u32) = (1200, 860);

/// Four streams, regret against the best model per task (in hindsight), with bands of two standard errors.
pub fn regret(report: &Report, file: &Path) {
    let panels: [(&str, &str, PriorKind, &str); 4] = [
        ("one pass", "llmrouter", PriorKind::Ridge, "llmrouter, one pass, prior: ridge head"),
        ("eight passes", "llmrouter", PriorKind::Flat, "llmrouter, eight passes, flat prior"),
        ("eight passes", "routellm", PriorKind::Flat, "routellm, eight passes, flat prior"),
        (
            "roles swapped midway",
            "llmrouter",
            PriorKind::Ridge,
            "llmrouter, roles swapped midway, prior: ridge head",
        ),
    ];
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE).expect("a canvas");
    for (area, (title, data, prior, caption)) in root.split_evenly((2, 2)).iter().zip(panels) {
        let experiment = report
            .experiments
            .iter()
            .find(|e| e.title == title && e.data == data && e.prior == prior && e.cost_weight == 1.0)
            .expect("the experiment of the panel");
        panel(area, experiment, caption);
    }
    root.present().unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}

fn panel(area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, experiment: &Experiment, caption: &str) {
    // Colours that also differ to the colour-blind (Okabe and Ito).
    let lines = [
        (Policy::NoLearning, "no learning", RGBColor(213, 94, 0)),
        (Policy::BestSingle, "best single (hindsight)", RGBColor(120, 120, 120)),
        (Policy::TaskMeans, "online mean per true task", RGBColor(0, 158, 115)),
        (Policy::Ours(Learn::default()), "bandit", RGBColor(0, 114, 178)),
    ];
    let rows: Vec<(&Row, &str, RGBColor)> = lines
        .iter()
        .filter_map(|(policy, name, colour)| {
            Some((experiment.rows.iter().find(|row| row.policy == *policy)?, *name, *colour))
        })
        // With a flat prior, no learning means the first model always.
        .filter(|(row, ..)| !(experiment.prior == PriorKind::Flat && row.policy == Policy::NoLearning))
        .collect();
    let edge = |figure: &Figure, sign: f64| figure.mean + sign * 2.0 * figure.error;
    let all = || rows.iter().flat_map(|(row, ..)| &row.regret_task);
    let (low, high) =
        all().fold((0.0f64, 1.0f64), |(low, high), f| (low.min(edge(f, -1.0)), high.max(edge(f, 1.0))));
    let room = 0.05 * (high - low);
    let turns = experiment.turns as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 19))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..turns, low - room..high + room)
        .expect("axes");
    chart
        .configure_mesh()
        .x_desc("turns")
        .y_desc("regret against best per task")
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.12))
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .label_style(("sans-serif", 14))
        .draw()
        .expect("a mesh");
    for (row, name, colour) in rows {
        let points = || std::iter::once(0.0).chain(experiment.at.iter().map(|&t| t as f64));
        let with = |sign: f64| {
            let values = std::iter::once(0.0).chain(row.regret_task.iter().map(move |f| edge(f, sign)));
            points().zip(values).collect::<Vec<(f64, f64)>>()
        };
        let band: Vec<_> = with(1.0).into_iter().chain(with(-1.0).into_iter().rev()).collect();
        chart.draw_series([Polygon::new(band, colour.mix(0.18).filled())]).expect("a band");
        chart
            .draw_series(LineSeries::new(with(0.0), colour.stroke_width(2)))
            .expect("a line")
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .label_font(("sans-serif", 14))
        .draw()
        .expect("a legend");
}
