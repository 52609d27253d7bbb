//! What a probe found, for people and for machines.

use breakbulk::gateway::probe::{Finding, Limits, Refusal, Report, Way};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;
use crate::size;

/// Prints a report as text.
pub(super) fn print(report: &Report, out: &mut Output) -> Result<(), Failure> {
    for (name, way) in [("up", &report.up), ("down", &report.down)] {
        out.wrapped(&format!("{name:<5} text    {}", limits(&way.text)), 14)?;
        if let Some(binary) = &way.binary {
            out.wrapped(&format!("{:<5} binary  {}", "", limits(binary)), 14)?;
        }
    }
    let rate = |rate: Option<f64>| match rate {
        Some(rate) => format!("{}/s", size::show(rate as usize)),
        None => "unknown".to_owned(),
    };
    let measured = format!(
        "round trip {:.1} ms, up {}, down {}; {} over {}",
        report.round_trip.as_secs_f64() * 1000.0,
        rate(report.up_rate),
        rate(report.down_rate),
        counted(report.questions, "message"),
        counted(report.connections, "connection")
    );
    out.wrapped(&measured, 2)?;
    let advice = &report.advice;
    if !advice.rows.is_empty() {
        let rows = advice.rows.join(", ");
        out.wrapped(&format!("like    {rows} (breakbulk caps NAME)"), 8)?;
    }
    if !report.is_usable() {
        return Ok(());
    }
    let options = match advice.options() {
        options if options.is_empty() => "no option is needed for messages of this size".to_owned(),
        options => match advice.preset {
            Some(preset) => format!("{options}, or --preset {preset}; at both gateways"),
            None => format!("{options}; at both gateways"),
        },
    };
    out.wrapped(&format!("use     {options}"), 8)
}

fn counted(count: u32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

fn limits(limits: &Limits) -> String {
    let message = finding(&limits.message);
    match &limits.frame {
        None => message,
        Some(frame) => format!("{message}; in frames: {}", finding(frame)),
    }
}

fn finding(finding: &Finding) -> String {
    match finding {
        Finding::NoCap { tried } => format!("no limit up to {tried} bytes"),
        Finding::Cap { bytes, refusal } => {
            format!("{bytes} bytes pass; one more: {refusal}")
        }
        Finding::Nothing { tried, refusal } => {
            format!("not even {tried} bytes pass: {refusal}")
        }
        Finding::Unsteady { passed } => format!(
            "unsteady: {passed} bytes passed, but messages of one size are sometimes refused; try again later"
        ),
        _ => "unknown: see breakbulk probe --json".to_owned(),
    }
}

/// A report as data.
pub(super) fn object(report: &Report) -> Value {
    let advice = &report.advice;
    json!({
        "up": way(&report.up),
        "down": way(&report.down),
        "roundTripMs": report.round_trip.as_secs_f64() * 1000.0,
        "upBytesPerSecond": report.up_rate.map(|rate| rate as u64),
        "downBytesPerSecond": report.down_rate.map(|rate| rate as u64),
        "messages": report.questions,
        "connections": report.connections,
        "rows": advice.rows,
        "maxFrame": advice.max_frame,
        "fragment": advice.fragment,
        "preset": advice.preset,
    })
}

fn way(way: &Way) -> Value {
    let limits = |limits: &Limits| {
        json!({
            "message": found(&limits.message),
            "frame": limits.frame.as_ref().map(found),
        })
    };
    json!({
        "text": limits(&way.text),
        "binary": way.binary.as_ref().map(limits),
    })
}

fn found(finding: &Finding) -> Value {
    let (result, refusal) = match finding {
        Finding::NoCap { .. } => ("none", None),
        Finding::Cap { refusal, .. } => ("cap", Some(refusal)),
        Finding::Nothing { refusal, .. } => ("nothing", Some(refusal)),
        _ => ("unsteady", None),
    };
    json!({
        "result": result,
        "bytes": finding.passes(),
        "above": refusal.map(|refusal| json!({
            "kind": refusal.name(),
            "code": refusal.code(),
            "arrived": match refusal {
                Refusal::Truncated { arrived } => Some(*arrived),
                _ => None,
            },
            "words": refusal.to_string(),
        })),
    })
}
