//! The samples as a picture.

use std::fmt::Write as _;

use crate::samples::Sample;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 84.0;
/// The height of one chart, and the gap between two.
const HEIGHT: f64 = 120.0;
const GAP: f64 = 44.0;

/// Members by name, each in a colour that can be told from the others by its lightness, too.
const COLOURS: [(&str, &str); 4] = [
    ("near-a", "#0b5394"),
    ("near-b", "#6fa8dc"),
    ("far-a", "#990000"),
    ("far-b", "#f6a04d"),
];

type Value = fn(&Sample) -> Option<f64>;

const CHARTS: [(&str, Value); 4] = [
    ("resident memory, MB", |it| {
        Some(it.reading.resident as f64 / 1e6)
    }),
    ("descriptors", |it| Some(it.reading.descriptors as f64)),
    ("sessions", |it| Some(it.reading.sessions as f64)),
    ("messages to and from clients per second", |it| {
        it.messages_per_second
    }),
];

/// Draws all samples. `restarts` are the times of restarts, in seconds; `title` says what ran.
pub(crate) fn svg(samples: &[Sample], restarts: &[f64], title: &str) -> String {
    let last = samples.iter().map(|it| it.seconds).fold(1.0, f64::max);
    let x = |seconds: f64| LEFT + (WIDTH - LEFT - RIGHT) * seconds / last;
    let total = TOP + (HEIGHT + GAP) * CHARTS.len() as f64;
    let mut out = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" font-family="sans-serif" font-size="12">
<title>{title}</title>
<rect width="{WIDTH}" height="{total}" fill="#ffffff"/>
<text x="{LEFT}" y="24" font-size="15" fill="#222222">{title}</text>
"##
    );
    for (number, (name, colour)) in COLOURS.iter().enumerate() {
        let at = LEFT + 110.0 * number as f64;
        let _ = writeln!(
            out,
            r##"<path d="M{at} 44h22" stroke="{colour}" stroke-width="2.5"/><text x="{}" y="48" fill="#222222">{name}</text>"##,
            at + 28.0
        );
    }
    let at = LEFT + 110.0 * COLOURS.len() as f64;
    let _ = writeln!(
        out,
        r##"<path d="M{at} 44h22" stroke="#999999" stroke-dasharray="3 3"/><text x="{}" y="48" fill="#222222">restart of near-b or far-b</text>"##,
        at + 28.0
    );
    for (number, (name, value)) in CHARTS.iter().enumerate() {
        let bottom = TOP + (HEIGHT + GAP) * number as f64 + HEIGHT;
        chart(&mut out, samples, restarts, (name, *value), bottom, &x);
    }
    let minutes = last / 60.0;
    let step = if minutes > 5.0 { 5.0 } else { 0.25 };
    let bottom = TOP + (HEIGHT + GAP) * CHARTS.len() as f64 - GAP;
    for tick in 0..=(minutes / step) as u32 {
        let minute = f64::from(tick) * step;
        let _ = writeln!(
            out,
            r##"<text x="{:.1}" y="{}" text-anchor="middle" fill="#555555">{minute} min</text>"##,
            x(minute * 60.0),
            bottom + 18.0
        );
    }
    out.push_str("</svg>\n");
    out
}

fn chart(
    out: &mut String,
    samples: &[Sample],
    restarts: &[f64],
    (name, value): (&str, Value),
    bottom: f64,
    x: &impl Fn(f64) -> f64,
) {
    let most = round_up(samples.iter().filter_map(value).fold(1.0, f64::max));
    let y = |value: f64| bottom - HEIGHT * value / most;
    let _ = writeln!(
        out,
        r##"<text x="{LEFT}" y="{}" fill="#222222">{name}</text>"##,
        bottom - HEIGHT - 8.0
    );
    for part in [0.0, 0.5, 1.0] {
        let (at, value) = (y(most * part), most * part);
        let _ = writeln!(
            out,
            r##"<path d="M{LEFT} {at:.1}H{}" stroke="#dddddd"/><text x="{}" y="{:.1}" text-anchor="end" fill="#555555">{value}</text>"##,
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0
        );
    }
    for restart in restarts {
        let _ = writeln!(
            out,
            r##"<path d="M{:.1} {bottom}v-{HEIGHT}" stroke="#999999" stroke-dasharray="3 3"/>"##,
            x(*restart)
        );
    }
    for (member, colour) in COLOURS {
        let points = samples.iter().filter(|it| it.member == member);
        let points: Vec<String> = points
            .filter_map(|it| Some(format!("{:.1},{:.1}", x(it.seconds), y(value(it)?))))
            .collect();
        let _ = writeln!(
            out,
            r##"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="1.5"/>"##,
            points.join(" ")
        );
    }
}

/// A round number that is not smaller.
fn round_up(value: f64) -> f64 {
    let magnitude = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|step| step * magnitude);
    steps
        .into_iter()
        .find(|step| *step >= value)
        .unwrap_or(value)
}
