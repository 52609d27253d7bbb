//! The client: sends the offer and waits until the data channel is open.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use reqwest::{Method, Url};
use tokio::time::timeout;
use webrtc::data_channel::RTCDataChannelInit;
use webrtc::error::Error;
use webrtc::peer_connection::RTCSessionDescription;

use super::channel::{Channel, opened};
use super::options::ChannelOptions;
use super::peer::Peer;
use crate::http::client::{HttpClient, read_answer};
use crate::http::{ClientOptions, ConnectError};

/// Opens a data channel to the server at an `http://` or `https://` address.
pub async fn connect(
    url: &str,
    options: &ClientOptions,
    channel: &ChannelOptions,
) -> Result<Channel, ConnectError> {
    let client = HttpClient::new(url, options).await?;
    let within = channel.open_time;
    let channel = &local_if_loopback(url, channel);
    match timeout(within, dial(&client, options, channel)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(client.timed_out(within)),
    }
}

/// If the server is on this machine, binds to a loopback address: nothing needs to leave the machine.
fn local_if_loopback(url: &str, options: &ChannelOptions) -> ChannelOptions {
    let mut options = options.clone();
    let host = url.parse::<Url>().ok().and_then(|url| {
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        match host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback().then_some(address),
            Err(_) => (host == "localhost").then_some(Ipv4Addr::LOCALHOST.into()),
        }
    });
    if let Some(address) = host
        && options.bind == ChannelOptions::default().bind
    {
        options.bind = vec![SocketAddr::new(address, 0).to_string()];
    }
    options
}

async fn dial(
    client: &HttpClient,
    options: &ClientOptions,
    limits: &ChannelOptions,
) -> Result<Channel, ConnectError> {
    let dialect = &options.dialect;
    let failed =
        |error: Error| client.failed_because(format!("opening a data channel failed: {error}"));
    let (mut peer, _) = Peer::new(limits).await.map_err(failed)?;
    let ordered = RTCDataChannelInit {
        ordered: true,
        ..RTCDataChannelInit::default()
    };
    let connection = peer.connection.clone();
    let channel = connection
        .create_data_channel(dialect.channel_label, Some(ordered))
        .await;
    let channel = channel.map_err(failed)?;
    let offer = connection.create_offer(None).await.map_err(failed)?;
    let local = connection.set_local_description(offer).await;
    local.map_err(failed)?;
    let description = peer.local_description().await;
    let offer =
        description.ok_or_else(|| client.failed_because("this machine has no address to offer"))?;
    let body =
        serde_json::to_vec(&offer).map_err(|error| client.failed_because(error.to_string()))?;
    let request = client
        .request(
            Method::POST,
            dialect.offer,
            &[(dialect.peer_parameter, &options.peer_id)],
        )
        .header("content-type", "application/json")
        .body(body);
    let response = client.ask(request, limits.open_time).await?;
    let answer = read_answer(response, limits.description_max).await;
    let answer = answer.map_err(|reason| client.unexpected_answer(reason))?;
    let answer: RTCSessionDescription = serde_json::from_slice(&answer).map_err(|error| {
        client.unexpected_answer(format!("its answer is not a session description: {error}"))
    })?;
    let remote = connection.set_remote_description(answer).await;
    remote.map_err(failed)?;
    let open = tokio::select! {
        open = opened(&channel) => open,
        () = peer.failed() => false,
    };
    if !open {
        return Err(client.failed_because(
            "no UDP packets get through to it: check firewalls, or name a STUN server",
        ));
    }
    Ok(Channel::new(channel, peer, None, limits.message_max))
}
