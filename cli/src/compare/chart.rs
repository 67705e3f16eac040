//! The chart: bars on a terminal, and the same as SVG.

use super::rows::Line;
use crate::bench::show::figure;
use crate::exit::Exit;
use crate::failure::Failure;
use plotters::prelude::*;

/// Blocks of a whole bar.
const WIDTH: usize = 24;

/// A bar for a share of 1, to an eighth of a block.
pub fn bar(share: f64) -> String {
    const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * (WIDTH * 8) as f64).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    match eighths % 8 {
        0 if eighths == 0 => text.push('▏'),
        0 => {}
        rest => text.push(EIGHTHS[rest - 1]),
    }
    text
}

/// Colours of records that a colour-blind reader tells apart (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
];
const LEFT: i32 = 300;
const RIGHT: i32 = 110;
const BARS: i32 = 420;
const ROW: i32 = 20;
const HEAD: i32 = 26;

/// The bars as SVG: a group for each test, a bar for each figure, a line where its bound stands.
pub fn svg(lines: &[Line]) -> Result<String, Failure> {
    let mut text = String::new();
    let groups = groups(lines);
    let height = groups.iter().map(|group| HEAD + ROW * group.len() as i32).sum::<i32>() + 30;
    let drawn = {
        let size = ((LEFT + BARS + RIGHT) as u32, height as u32);
        draw(&SVGBackend::with_string(&mut text, size).into_drawing_area(), lines, &groups)
    };
    drawn.map_err(|error| Failure::new(Exit::Other, format!("the chart cannot be drawn: {error}")))?;
    Ok(text)
}

/// Lines of one test, tests in order.
fn groups(lines: &[Line]) -> Vec<Vec<&Line>> {
    let mut groups: Vec<Vec<&Line>> = Vec::new();
    for line in lines {
        match groups.last_mut() {
            Some(group) if group[0].test == line.test => group.push(line),
            _ => groups.push(vec![line]),
        }
    }
    groups
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(
    area: &Area<'_>,
    lines: &[Line],
    groups: &[Vec<&Line>],
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    area.fill(&WHITE)?;
    let mut names: Vec<&str> = Vec::new();
    for line in lines {
        if !names.contains(&line.record.as_str()) {
            names.push(&line.record);
        }
    }
    let bold = ("sans-serif", 14).into_font().style(FontStyle::Bold).color(&BLACK);
    let plain = ("sans-serif", 12).into_font().color(&BLACK);
    let mut y = 6;
    for group in groups {
        let unit = group[0].unit;
        area.draw(&Text::new(format!("{}, {unit}", group[0].test), (8, y + 4), bold.clone()))?;
        y += HEAD;
        // A bound far above the figures would leave them no room: the scale is that of the figures.
        let most = group.iter().map(|line| line.value).fold(0.0, f64::max).max(1e-12) * 1.25;
        let x = |value: f64| LEFT + (value / most * f64::from(BARS)).round() as i32;
        for line in group {
            let at = names.iter().position(|name| *name == line.record).unwrap_or(0);
            let colour = COLOURS[at % COLOURS.len()];
            let label = format!("{} · {} × {}", line.record, line.isa, line.threads);
            let label: String = label.chars().take(46).collect();
            area.draw(&Text::new(label, (16, y + 1), plain.clone()))?;
            area.draw(&Rectangle::new(
                [(LEFT, y), (x(line.value).max(LEFT + 1), y + ROW - 6)],
                colour.filled(),
            ))?;
            let mut told = figure(line.value);
            if let Some(bound) = line.bound {
                told.push_str(&format!(" of {}", figure(bound)));
                if bound <= most {
                    area.draw(&PathElement::new(
                        vec![(x(bound), y - 2), (x(bound), y + ROW - 4)],
                        BLACK.stroke_width(2),
                    ))?;
                }
            }
            let end = match line.bound {
                Some(bound) if bound <= most => x(bound.max(line.value)),
                _ => x(line.value),
            };
            area.draw(&Text::new(told, (end + 6, y + 1), plain.clone()))?;
            y += ROW;
        }
    }
    area.draw(&Text::new(
        "Kernels × threads. Bars: what was measured, one sequence at a time. A black line, and the figure after “of”: the most that the machine's measured limits allow.",
        (8, y + 8),
        plain,
    ))?;
    area.present()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert_eq!(bar(1.0).chars().count(), WIDTH);
        assert_eq!(bar(0.5), "█".repeat(WIDTH / 2));
        assert_eq!(bar(0.0), "▏");
        assert_eq!(bar(f64::NAN), "▏");
        assert_eq!(bar(2.0), bar(1.0));
        assert!(bar(0.51).starts_with(&bar(0.5)) && bar(0.51) != bar(0.5));
    }
}
