//! The order of events that a relay had stored.

use breakbulk_message::jsonrpc::Envelope;
use breakbulk_message::mcp::{CANCELLED, PROGRESS, Progress};

use super::Arrival;

/// Brings events that a relay had stored into the order in which they were made: relays send them newest first, those
/// of one second in any order, and CEP-22 wants the frames of a transfer nearly in order and its `end` last. Events
/// of one second go by their progress, which grows with each frame; what ends a request comes last.
pub fn sort_stored(arrivals: &mut [Arrival]) {
    arrivals.reverse();
    arrivals.sort_by_cached_key(|arrival| (arrival.created_at, place(arrival)));
}

/// The place of a message among those of its second: frames and other progress by their number, requests and
/// notifications before them, responses and cancellations behind them.
fn place(arrival: &Arrival) -> u64 {
    let text = std::str::from_utf8(&arrival.content).unwrap_or_default();
    let Some(envelope) = Envelope::parse(text) else {
        return 0;
    };
    match envelope.method().as_deref() {
        Some(PROGRESS) => {
            let progress = envelope.params.and_then(Progress::read);
            progress
                .and_then(|progress| progress.progress.as_u64())
                .unwrap_or(0)
        }
        None | Some(CANCELLED) => u64::MAX,
        Some(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{EventId, PublicKey, Seal};

    // CEP22-26
    #[test]
    fn stored_events_go_by_their_time_and_number() {
        let frame = |number: u64| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"{PROGRESS}","params":{{"progressToken":"t","progress":{number},"cvm":{{"type":"chunk"}}}}}}"#
            )
        };
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let made = [
            (10, request.to_owned()),
            (10, request.replace("ping", "later in that second")),
            (11, frame(9)),
            (11, frame(10)),
            (11, frame(11)),
            (12, frame(12)),
            (12, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned()),
            (13, frame(1)),
            (
                13,
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#.to_owned(),
            ),
            (14, frame(2)),
            (14, "no JSON".to_owned()),
        ];
        // In the order in which a relay sends them: newest first, those of one second in any order.
        let mut arrivals: Vec<Arrival> = [10, 9, 8, 7, 6, 5, 3, 4, 2, 1, 0]
            .map(|at: usize| Arrival {
                from: PublicKey::from_byte_array([1; 32]),
                id: EventId::from_byte_array([u8::try_from(at).unwrap(); 32]),
                tags: Vec::new(),
                content: made[at].1.clone().into(),
                seal: Seal::Persistent,
                created_at: made[at].0,
                received_at: 20,
            })
            .into();
        sort_stored(&mut arrivals);
        let order: Vec<u8> = arrivals.iter().map(|it| it.id.to_bytes()[0]).collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 9]);
    }
}
