//! Samples of what the gateways take, as a file and as a judgement.

use std::fmt::Write as _;

use crate::member::Reading;

/// One look at one member.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) seconds: f64,
    pub(crate) member: &'static str,
    pub(crate) reading: Reading,
    /// Since the sample before, if it is known.
    pub(crate) messages_per_second: Option<f64>,
}

/// All samples as comma-separated values.
pub(crate) fn csv(samples: &[Sample]) -> String {
    let mut text =
        "seconds,member,resident,descriptors,children,sessions,messages_per_second\n".to_owned();
    for sample in samples {
        let Sample {
            seconds,
            member,
            reading,
            messages_per_second,
        } = sample;
        let Reading {
            resident,
            descriptors,
            children,
            sessions,
            ..
        } = reading;
        let messages_per_second =
            messages_per_second.map_or(String::new(), |it| format!("{it:.1}"));
        let _ = writeln!(
            text,
            "{seconds:.1},{member},{resident},{descriptors},{children},{sessions},{messages_per_second}"
        );
    }
    text
}

/// How much a value grows from the first to the last point, by the straight line that fits best. Of every
/// tenth of the points the lowest counts: messages that are just on their way come and go, and what is
/// never given back raises the lowest ones.
pub(crate) fn growth(points: &[(f64, f64)]) -> f64 {
    let lowest = |part: &[(f64, f64)]| part.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
    let parts = points.chunks(points.len().div_ceil(10).max(1));
    let points: Vec<(f64, f64)> = parts.filter_map(lowest).collect();
    let count = points.len() as f64;
    let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (x, y) = (mean(|it| it.0), mean(|it| it.1));
    let spread: f64 = points.iter().map(|it| (it.0 - x).powi(2)).sum();
    let both: f64 = points.iter().map(|it| (it.0 - x) * (it.1 - y)).sum();
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return 0.0;
    };
    match spread > 0.0 {
        true => both / spread * (last.0 - first.0),
        false => 0.0,
    }
}

#[test]
fn growth_is_that_of_the_lowest_points() {
    let points = |value: fn(f64) -> f64| -> Vec<(f64, f64)> {
        (0..100)
            .map(|it| (f64::from(it), value(f64::from(it))))
            .collect()
    };
    let peaks = |x: f64| {
        if (x as u64).is_multiple_of(7) {
            1e6 + x * 1e3
        } else {
            5.0
        }
    };
    assert!(growth(&points(peaks)).abs() < 1e-6);
    let leak = growth(&points(|x| {
        3.0 * x
            + if (x as u64).is_multiple_of(2) {
                40.0
            } else {
                0.0
            }
    }));
    assert!((leak - 270.0).abs() < 10.0, "{leak}");
    assert_eq!(growth(&[]), 0.0);
}
