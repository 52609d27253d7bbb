//! The side that offers.

use reqwest::Method;
use tokio::time::timeout;
use webrtc::data_channel::RTCDataChannelInit;
use webrtc::error::Error;
use webrtc::peer_connection::RTCSessionDescription;

use super::channel::{Channel, opened};
use super::options::ChannelOptions;
use super::peer::Peer;
use crate::http::client::{Site, read};
use crate::http::{ClientOptions, ConnectError};

/// Opens a data channel to the server at an `http://` or `https://` address.
pub async fn connect(
    url: &str,
    options: &ClientOptions,
    channel: &ChannelOptions,
) -> Result<Channel, ConnectError> {
    let site = Site::new(url, options).await?;
    let within = channel.open_time;
    match timeout(within, dial(&site, options, channel)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(site.late(within)),
    }
}

async fn dial(
    site: &Site,
    options: &ClientOptions,
    limits: &ChannelOptions,
) -> Result<Channel, ConnectError> {
    let dialect = &options.dialect;
    let broken = |error: Error| site.broken(format!("no data channel: {error}"));
    let (mut peer, _) = Peer::new(limits).await.map_err(broken)?;
    let ordered = RTCDataChannelInit {
        ordered: true,
        ..RTCDataChannelInit::default()
    };
    let connection = peer.connection.clone();
    let channel = connection
        .create_data_channel(dialect.channel_label, Some(ordered))
        .await;
    let channel = channel.map_err(broken)?;
    let offer = connection.create_offer(None).await.map_err(broken)?;
    let local = connection.set_local_description(offer).await;
    local.map_err(broken)?;
    let described = peer.described().await;
    let offer = described.ok_or_else(|| site.broken("no address of this machine to offer"))?;
    let body = serde_json::to_vec(&offer).map_err(|error| site.broken(error.to_string()))?;
    let request = site
        .request(
            Method::POST,
            dialect.offer,
            &[(dialect.peer_parameter, &options.peer_id)],
        )
        .header("content-type", "application/json")
        .body(body);
    let response = site.ask(request, limits.open_time).await?;
    let answer = read(response, limits.description_max).await;
    let answer = answer.map_err(|reason| site.not_ours(reason))?;
    let answer: RTCSessionDescription = serde_json::from_slice(&answer)
        .map_err(|error| site.not_ours(format!("its answer is no description: {error}")))?;
    let remote = connection.set_remote_description(answer).await;
    remote.map_err(broken)?;
    let open = tokio::select! {
        open = opened(&channel) => open,
        () = peer.failed() => false,
    };
    if !open {
        return Err(
            site.broken("no path for datagrams to it: check firewalls, or name a STUN server")
        );
    }
    Ok(Channel::new(channel, peer, None, limits.message_max))
}
