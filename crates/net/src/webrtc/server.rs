//! The server: answers a client's offer, and waits for its data channel.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use tokio::sync::mpsc;
use tokio::time::timeout;
use webrtc::data_channel::DataChannel;
use webrtc::peer_connection::{RTCSdpType, RTCSessionDescription};

use super::channel::{Channel, opened};
use super::peer::{Peer, close_unwanted};
use crate::gate::Permit;
use crate::http::server::ServerState;
use crate::http::{AcceptedTransport, Answer, Arrival, Claim, Grant, Way, read_or_answer};
use crate::limiter::AddressKey;

/// The limit on candidates in an offer: this side sends packets to each of them.
const CANDIDATES_MAX: usize = 32;

/// Handles an offer.
pub(crate) async fn offer(
    State(state): State<Arc<ServerState>>,
    request: Request,
) -> Result<Answer, Answer> {
    let (head, body) = request.into_parts();
    let (claim, grant) = authorize(&state, &head)?;
    let permit = state.permit(&claim)?;
    let limits = &state.options.webrtc;
    let within = limits.open_time;
    let late = |_| Answer::busy("the offer took too long").closing();
    // Offers have no connection yet: all of them count as one.
    let mut charge = state.bodies.begin(0);
    let body = read_or_answer(&head.headers, body, limits.description_max, &mut charge);
    let body = timeout(within, body).await.map_err(late)??;
    // Only a complete offer takes a place, so that bodies that come in slowly keep no other client out.
    let key = claim.remote.and_then(|at| AddressKey::of(at.ip()));
    let place = state.half_open.take(key, true);
    let (place, _) = place.map_err(|_| busy(&state))?;
    let answered = async {
        let mut offer = parse_offer(&body)?;
        if limits.is_local() {
            offer.sdp = without_candidates(&offer.sdp);
        }
        answer(&state, offer).await
    };
    let (peer, channels, text) = tokio::select! {
        answered = timeout(within, answered) => answered.map_err(late)??,
        () = place.evicted_by_newcomer() => return Err(busy(&state)),
    };
    tokio::spawn(async move {
        let peer_id = claim.peer_id.clone();
        let accepted = accept_channel(&state, peer, channels, claim, grant, permit);
        let accepted = tokio::select! {
            accepted = timeout(state.options.webrtc.open_time, accepted) => accepted.unwrap_or(false),
            () = place.evicted_by_newcomer() => false,
        };
        drop(place);
        if !accepted {
            tracing::debug!(
                peer_id,
                "the client opened no usable data channel after its offer was answered"
            );
        }
    });
    Ok(Answer::json(StatusCode::OK, text))
}

fn busy(state: &ServerState) -> Answer {
    let limit = state.options.webrtc.half_open;
    Answer::busy(&format!(
        "{limit} data channels are being opened: try again later"
    ))
}

fn authorize(state: &ServerState, head: &Parts) -> Result<(Claim, Grant), Answer> {
    let dialect = &state.options.dialect;
    let in_header = || {
        let id = head.headers.get(dialect.peer_header)?.to_str().ok()?;
        (!id.is_empty()).then(|| id.to_owned())
    };
    let named = state.peer_id(head).or_else(in_header);
    let peer_id = named.ok_or_else(|| Answer::bad(dialect.no_peer))?;
    state.authorize(Way::DataChannel, peer_id, head)
}

/// Parses an offer, which must offer data channels and nothing else.
fn parse_offer(body: &[u8]) -> Result<RTCSessionDescription, Answer> {
    let offer: RTCSessionDescription = serde_json::from_slice(body)
        .map_err(|_| Answer::bad(r#"an offer is {"type":"offer","sdp":"…"}"#))?;
    if offer.sdp_type != RTCSdpType::Offer {
        return Err(Answer::bad(r#"its type must be "offer""#));
    }
    let count = |start: &str| {
        offer
            .sdp
            .lines()
            .filter(|line| line.starts_with(start))
            .count()
    };
    if (count("m="), count("m=application ")) != (1, 1) {
        return Err(Answer::bad("it must offer data channels and nothing else"));
    }
    let candidates = count("a=candidate:");
    if candidates > CANDIDATES_MAX {
        let error = format!("{candidates} candidates are over the limit of {CANDIDATES_MAX}");
        return Err(Answer::bad(&error));
    }
    Ok(offer)
}

/// The offer without the addresses of its sender, so that no packet goes to one before a packet came
/// from it. A client of this machine reaches us by the address in our answer.
fn without_candidates(sdp: &str) -> String {
    let lines = sdp
        .split_inclusive('\n')
        .filter(|line| !line.starts_with("a=candidate:"));
    lines.collect()
}

type Answered = (Peer, mpsc::Receiver<Arc<dyn DataChannel>>, String);

async fn answer(state: &ServerState, offer: RTCSessionDescription) -> Result<Answered, Answer> {
    let ours = |error: webrtc::error::Error| {
        tracing::warn!(
            %error,
            "creating a WebRTC peer connection failed; check the UDP addresses to bind"
        );
        Answer::busy("this server cannot open data channels")
    };
    let theirs =
        |error: webrtc::error::Error| Answer::bad(&format!("the offer cannot be used: {error}"));
    let (mut peer, channels) = Peer::new(&state.options.webrtc).await.map_err(ours)?;
    let connection = peer.connection.clone();
    let remote = connection.set_remote_description(offer).await;
    remote.map_err(theirs)?;
    let answer = connection.create_answer(None).await.map_err(theirs)?;
    let local = connection.set_local_description(answer).await;
    local.map_err(theirs)?;
    let none = || Answer::busy("this server has no address to answer with");
    let answer = peer.local_description().await.ok_or_else(none)?;
    let text = serde_json::to_string(&answer).map_err(|_| none())?;
    Ok((peer, channels, text))
}

/// Waits until the client opens the channel that carries frames, and hands it to the application.
async fn accept_channel(
    state: &ServerState,
    mut peer: Peer,
    mut channels: mpsc::Receiver<Arc<dyn DataChannel>>,
    claim: Claim,
    grant: Grant,
    permit: Permit,
) -> bool {
    let channel = loop {
        let channel = tokio::select! {
            Some(channel) = channels.recv() => channel,
            () = peer.failed() => return false,
        };
        let ordered = channel.ordered().await.unwrap_or(false);
        let reliable = matches!(channel.max_retransmits().await, Ok(None))
            && matches!(channel.max_packet_life_time().await, Ok(None));
        if channel
            .label()
            .await
            .is_ok_and(|label| label == state.options.dialect.channel_label)
            && ordered
            && reliable
        {
            break channel;
        }
        close_unwanted(channel);
    };
    // Further channels are closed as they come.
    while let Ok(unwanted) = channels.try_recv() {
        close_unwanted(unwanted);
    }
    drop(channels);
    let open = tokio::select! {
        open = opened(&channel) => open,
        () = peer.failed() => false,
    };
    if !open {
        return false;
    }
    let limit = state.options.webrtc.message_max;
    let transport = AcceptedTransport::Channel(Channel::new(channel, peer, Some(permit), limit));
    let arrival = Arrival {
        claim,
        grant,
        transport,
    };
    state.queue_arrival(arrival).await.is_ok()
}
