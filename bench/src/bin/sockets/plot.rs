//! Draws lines over logarithmic axes as an SVG picture, without a graphics library.

use std::fmt::Write;

/// One plot: lines that share their axes.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) series: Vec<Series<'a>>,
}

/// One line.
pub(crate) struct Series<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 50.0;

/// Colours that colour-blind people can tell apart.
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

/// The plots side by side under a title.
pub(crate) fn draw(title: &str, across: &str, plots: &[Plot<'_>]) -> String {
    let width = WIDTH * plots.len() as f64;
    let mut out = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" font-family="sans-serif" font-size="11" fill="#222">
<rect width="{width}" height="{HEIGHT}" fill="#fff"/>
<text x="{}" y="20" text-anchor="middle" font-size="14">{title}</text>
"##,
        width / 2.0
    );
    for (number, plot) in plots.iter().enumerate() {
        one(&mut out, plot, across, WIDTH * number as f64);
    }
    out.push_str("</svg>\n");
    out
}

fn one(out: &mut String, plot: &Plot<'_>, across: &str, from: f64) {
    let points = || plot.series.iter().flat_map(|series| &series.points);
    let (x_range, y_range) = (
        decades(points().map(|point| point.0)),
        decades(points().map(|point| point.1)),
    );
    let (left, right) = (from + LEFT, from + WIDTH - RIGHT);
    let (top, bottom) = (TOP, HEIGHT - BOTTOM);
    let x_of = |x: f64| left + (right - left) * part(x_range, x);
    let y_of = |y: f64| bottom - (bottom - top) * part(y_range, y);
    let mut add = |line: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{line}");
    };
    let middle = (left + right) / 2.0;
    let title = plot.title;
    add(format!(
        r#"<text x="{middle:.1}" y="38" text-anchor="middle" font-weight="bold">{title}</text>"#
    ));
    add(format!(
        r#"<text x="{middle:.1}" y="{:.1}" text-anchor="middle">{across}</text>"#,
        bottom + 36.0
    ));
    for power in x_range.0..=x_range.1 {
        let (value, x) = (10f64.powi(power), x_of(10f64.powi(power)));
        add(format!(
            r##"<path d="M{x:.1} {top}V{bottom}" stroke="#ddd"/><text x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"##,
            bottom + 16.0,
            short(value)
        ));
    }
    for power in y_range.0..=y_range.1 {
        let (value, y) = (10f64.powi(power), y_of(10f64.powi(power)));
        add(format!(
            r##"<path d="M{left} {y:.1}H{right}" stroke="#ddd"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"##,
            left - 6.0,
            y + 4.0,
            short(value)
        ));
    }
    for (number, series) in plot.series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let mut path = String::new();
        for (index, (x, y)) in series.points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            let (x, y) = (x_of(*x), y_of(*y));
            let _ = write!(path, "{command}{x:.1} {y:.1}");
            add(format!(
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"/>"#
            ));
        }
        add(format!(
            r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>"#
        ));
        let (x, y) = (left + 8.0, top + 14.0 + 15.0 * number as f64);
        let name = series.name;
        add(format!(
            r#"<text x="{x:.1}" y="{y:.1}" fill="{colour}" font-weight="bold">{name}</text>"#
        ));
    }
}

/// The powers of ten around all values.
fn decades(values: impl Iterator<Item = f64>) -> (i32, i32) {
    let (mut least, mut most) = (f64::MAX, f64::MIN_POSITIVE);
    for value in values.filter(|value| *value > 0.0) {
        (least, most) = (least.min(value), most.max(value));
    }
    let least = least.min(most).log10().floor() as i32;
    (least, (most.log10().ceil() as i32).max(least + 1))
}

/// The position of a value between two powers of ten, from 0 to 1.
fn part((least, most): (i32, i32), value: f64) -> f64 {
    (value.log10() - f64::from(least)) / f64::from(most - least)
}

/// A short text for a power of ten, for an axis.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_between_the_decades_around_them() {
        assert_eq!(decades([1.0, 10_000.0].into_iter()), (0, 4));
        assert_eq!(decades([0.05, 3.0].into_iter()), (-2, 1));
        assert_eq!(decades([10.0].into_iter()), (1, 2));
        assert!((part((0, 4), 100.0) - 0.5).abs() < 1e-9);
        let plot = Plot {
            title: "rate",
            series: vec![Series {
                name: "ours",
                points: vec![(1.0, 10.0), (100.0, 1000.0)],
            }],
        };
        let picture = draw("all", "connections", &[plot]);
        for expected in [
            r#"cx="60.0" cy="250.0""#,
            r#"cx="400.0" cy="60.0""#,
            "M60.0 250.0L400.0 60.0",
            ">ours<",
        ] {
            assert!(picture.contains(expected), "{expected} in {picture}");
        }
    }
}
