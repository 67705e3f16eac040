//! The report as a page of its own: no script, nothing that is fetched.

use super::error::FitError;
use super::report::{Judged, Report};
use super::route::{Panel, Point};
use super::score::Calibrated;
use plotters::prelude::*;

/// Text in a page: names come out of other people's files.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

/// A table; the first column is text, the others are figures.
fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let head: String = head.iter().map(|cell| format!("<th scope=\"col\">{}</th>", escaped(cell))).collect();
    let rows: String = rows
        .iter()
        .map(|row| {
            let cells: String = row.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
            format!("<tr>{cells}</tr>\n")
        })
        .collect();
    format!(
        "<div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>\n"
    )
}

fn owned(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn share(value: f64) -> String {
    format!("{value:.3}")
}

/// The page.
///
/// # Errors
/// [`FitError::Picture`].
pub fn html(report: &Report) -> Result<String, FitError> {
    let task = &report.task;
    let mut body = String::new();
    let about = [
        format!("Backbone {}, SHA-256 {}.", report.backbone.name, report.backbone.sha256),
        format!(
            "{} labelled rows, {} outcomes, {} different prompts. Held out together: {} ({}).",
            report.data.task_rows, report.data.outcomes, report.data.prompts, task.split, task.groups
        ),
    ];
    about.iter().for_each(|line| body.push_str(&format!("<p>{}</p>\n", escaped(line))));
    let notes: String = report.notes.iter().map(|note| format!("<li>{}</li>\n", escaped(note))).collect();
    if !notes.is_empty() {
        body.push_str(&format!("<ul class=\"warning\">\n{notes}</ul>\n"));
    }
    body.push_str("<h2>Task head</h2>\n");
    if let Some(held) = &task.held_out {
        let mut head = owned(&["", "balanced accuracy", "accuracy", "calibration error"]);
        head.extend(task.tasks.iter().map(|task| (*task).to_owned()));
        let row = |name: &str, judged: &Judged| {
            let mut cells = vec![
                name.to_owned(),
                share(judged.scores.balanced_accuracy),
                share(judged.scores.accuracy),
                judged.ece.map_or_else(String::new, share),
            ];
            cells.extend(
                task.tasks
                    .iter()
                    .map(|task| judged.scores.recall.get(*task).map_or_else(String::new, |r| share(*r))),
            );
            cells
        };
        let mut rows = vec![row("this head", held)];
        rows.extend(task.baselines.iter().map(|(name, judged)| row(name, judged)));
        body.push_str(
            "<p>On rows held out. The columns of tasks: the share of their rows that is right.</p>\n",
        );
        body.push_str(&table(&head, &rows));
        body.push_str("<h3>By fold and language</h3>\n");
        let named = held.folds.iter().enumerate().map(|(at, share)| (format!("fold {}", at + 1), share));
        let mut languages: Vec<_> = held.languages.iter().collect();
        languages.sort_by_key(|(_, share)| std::cmp::Reverse(share.n));
        let languages = languages.into_iter().map(|(name, share)| (name.clone(), share));
        let rows: Vec<Vec<String>> = named
            .chain(languages)
            .map(|(name, s)| vec![name, s.n.to_string(), share(s.accuracy), share(s.balanced_accuracy)])
            .collect();
        body.push_str(&table(&owned(&["", "rows", "accuracy", "balanced accuracy"]), &rows));
        body.push_str("<h3>What is taken for what</h3>\n");
        body.push_str(&confusion(&task.tasks, &task.confusion)?);
    } else {
        body.push_str("<p>Too few rows to hold any out: nothing is known of its worth.</p>\n");
    }
    if let Some(calibration) = &task.calibration {
        body.push_str("<h3>Whether a confidence is a probability</h3>\n");
        body.push_str(&reliability(calibration)?);
    }
    if let Some(route) = &report.route {
        body.push_str("<h2>Route head</h2>\n");
        let method = serde_json::to_string(&route.method)?;
        body.push_str(&format!("<p>Fitted as {}, on prompts held out:</p>\n", escaped(&method)));
        for panel in &route.panels {
            body.push_str(&self::panel(panel));
        }
    }
    Ok(format!(
        "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<title>Zen Edge: heads fitted</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
td, th {{ padding: .2rem .7rem; border-bottom: 1px solid #ccc; text-align: right; font-variant-numeric: tabular-nums; }}
td:first-child, th:first-child {{ text-align: left; }}
.warning {{ color: #8a4b00; }}
svg {{ max-width: 100%; height: auto; }}
.scroll {{ overflow-x: auto; }}
</style>
<h1>Heads fitted</h1>
{body}</html>
"
    ))
}

fn panel(panel: &Panel) -> String {
    let row = |name: String, point: &Point, aiq: Option<f64>| {
        vec![
            name,
            share(point.quality),
            format!("{:.4}", point.usd_per_1k_prompts),
            aiq.map_or_else(String::new, share),
        ]
    };
    let rows = [
        row("random".into(), &panel.random, None),
        row(format!("cheapest: {}", panel.cheapest_model), &panel.cheapest, None),
        row(format!("best single: {}", panel.best_single_model), &panel.best_single, Some(panel.aiq.models)),
        row("best of the true class".into(), &panel.best_per_class, Some(panel.aiq.best_per_class)),
        row("this head".into(), &panel.head, Some(panel.aiq.head)),
        row("oracle".into(), &panel.oracle, Some(panel.aiq.oracle)),
    ];
    format!(
        "<h3>{}</h3>\n<p>{} prompts, {} models. A random mix of single models reaches {:.3} at the head's cost.</p>\n{}",
        escaped(&panel.file),
        panel.prompts,
        panel.models.len(),
        panel.models_at_the_heads_cost,
        table(&owned(&["", "quality", "USD per 1k prompts", "AIQ"]), &rows)
    )
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String, FitError> {
    let mut text = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&area).and_then(|()| area.present())
    };
    drawn.map_err(|error| FitError::Picture(error.to_string()))?;
    Ok(text)
}

/// The confusion picture: rows are the true classes, and a cell is the darker the larger its share of the row.
pub fn confusion(tasks: &[&str], table: &[Vec<usize>]) -> Result<String, FitError> {
    const LEFT: i32 = 130;
    const TOP: i32 = 54;
    const WIDE: i32 = 84;
    const HIGH: i32 = 34;
    let n = tasks.len() as i32;
    svg(((LEFT + WIDE * n + 20) as u32, (TOP + HIGH * n + 20) as u32), |area| {
        area.fill(&WHITE)?;
        let plain = ("sans-serif", 13).into_font().color(&BLACK);
        area.draw(&Text::new("true \\ predicted", (8, TOP - 22), plain.clone()))?;
        for (at, task) in tasks.iter().enumerate() {
            area.draw(&Text::new(*task, (LEFT + WIDE * at as i32 + 6, TOP - 22), plain.clone()))?;
            area.draw(&Text::new(*task, (8, TOP + HIGH * at as i32 + 11), plain.clone()))?;
        }
        for (i, row) in table.iter().enumerate() {
            let all = row.iter().sum::<usize>().max(1) as f64;
            for (j, count) in row.iter().enumerate() {
                let part = *count as f64 / all;
                let fade = |to: u8| (255.0 - part.sqrt() * f64::from(255 - to)) as u8;
                let (x, y) = (LEFT + WIDE * j as i32, TOP + HIGH * i as i32);
                let colour = RGBColor(fade(0), fade(84), fade(148));
                area.draw(&Rectangle::new([(x, y), (x + WIDE - 2, y + HIGH - 2)], colour.filled()))?;
                let ink = if part > 0.4 { &WHITE } else { &BLACK };
                let told = format!("{count}  {:.0}%", 100.0 * part);
                area.draw(&Text::new(told, (x + 8, y + 11), ("sans-serif", 13).into_font().color(ink)))?;
            }
        }
        Ok(())
    })
}

/// The reliability diagram: how often predictions of a confidence are right. On the line a confidence is a probability.
pub fn reliability(calibration: &Calibrated) -> Result<String, FitError> {
    const LEFT: i32 = 60;
    const SIDE: i32 = 300;
    const TOP: i32 = 20;
    svg(((LEFT + SIDE + 330) as u32, (TOP + SIDE + 60) as u32), |area| {
        area.fill(&WHITE)?;
        let plain = ("sans-serif", 13).into_font().color(&BLACK);
        let at =
            |x: f64, y: f64| (LEFT + (x * f64::from(SIDE)) as i32, TOP + SIDE - (y * f64::from(SIDE)) as i32);
        area.draw(&Rectangle::new([at(0.0, 1.0), at(1.0, 0.0)], BLACK.mix(0.4)))?;
        area.draw(&PathElement::new(vec![at(0.0, 0.0), at(1.0, 1.0)], BLACK.mix(0.5)))?;
        let all = calibration.bins.iter().map(|bin| bin.n).sum::<usize>().max(1) as f64;
        let width = 1.0 / calibration.bins.len().max(1) as f64;
        for (bin, low) in calibration.bins.iter().zip((0..).map(|at| f64::from(at) * width)) {
            if bin.n == 0 {
                continue;
            }
            // The faint bars say how many rows there are of a confidence.
            let rows = bin.n as f64 / all;
            area.draw(&Rectangle::new(
                [at(low, rows), at(low + width * 0.9, 0.0)],
                RGBColor(200, 210, 220).filled(),
            ))?;
            area.draw(&Circle::new(at(bin.confidence, bin.accuracy), 5, RGBColor(0, 84, 148).filled()))?;
        }
        for tick in [0.0, 0.5, 1.0] {
            let (x, y) = at(tick, 0.0);
            area.draw(&Text::new(format!("{tick}"), (x - 8, y + 8), plain.clone()))?;
            let (x, y) = at(0.0, tick);
            area.draw(&Text::new(format!("{tick}"), (x - 28, y - 6), plain.clone()))?;
        }
        area.draw(&Text::new("confidence", (LEFT + SIDE / 2 - 30, TOP + SIDE + 30), plain.clone()))?;
        let told = [
            "dots: the share that is right".to_owned(),
            "bars: the share of rows of that confidence".to_owned(),
            format!("temperature {:.3}", calibration.temperature),
            format!("calibration error {:.3}, before {:.3}", calibration.ece[1], calibration.ece[0]),
            format!("mean confidence {:.3}", calibration.confidence),
        ];
        for (line, y) in told.into_iter().zip((0..).map(|at| TOP + 10 + 22 * at)) {
            area.draw(&Text::new(line, (LEFT + SIDE + 20, y), plain.clone()))?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::score::Bin;
    use super::*;

    #[test]
    fn pictures_show_what_they_are_given() {
        let text = confusion(&["code", "math"], &[vec![3, 1], vec![0, 4]]).unwrap();
        assert!(text.starts_with("<svg") && text.contains("3  75%") && text.contains("4  100%"));
        let bins = vec![Bin { n: 3, confidence: 0.7, accuracy: 0.5 }, Bin::default()];
        let calibration =
            Calibrated { temperature: 1.5, ece: [0.2, 0.01], nll: [1.0, 0.9], confidence: 0.7, bins };
        let text = reliability(&calibration).unwrap();
        assert!(text.matches("<circle").count() == 1 && text.contains("temperature 1.500"), "{text}");
        assert_eq!(escaped("<b>&"), "&lt;b&gt;&amp;");
    }
}
