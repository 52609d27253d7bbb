//! One WebRTC peer connection: set up, state changes and close.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rtc::ice::mdns::MulticastDnsMode;
use rtc::peer_connection::configuration::setting_engine::SctpMaxMessageSize;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use webrtc::data_channel::DataChannel;
use webrtc::error::Error;
use webrtc::peer_connection::{
    PeerConnection, PeerConnectionBuilder, PeerConnectionEventHandler, RTCConfigurationBuilder,
    RTCIceGatheringState, RTCIceServer, RTCPeerConnectionState, RTCSessionDescription,
    SettingEngineBuilder,
};

use super::options::ChannelOptions;

/// How many channels opened by the other end are queued; further ones are closed.
const CHANNELS: usize = 4;

/// A peer that opens more channels than this is treated as failed.
const CHANNELS_MAX: usize = 8;

/// A peer connection. Dropping it closes it; the library would keep it open for ever.
pub(crate) struct Peer {
    pub(crate) connection: Arc<dyn PeerConnection>,
    pub(crate) state: watch::Receiver<State>,
}

/// How far the set-up has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) gathered: bool,
    pub(crate) failed: bool,
}

impl Peer {
    /// A new peer connection, and the channels that the other end opens.
    pub(crate) async fn new(
        options: &ChannelOptions,
    ) -> Result<(Self, mpsc::Receiver<Arc<dyn DataChannel>>), Error> {
        let (state_sender, state) = watch::channel(State::default());
        let (channel_sender, channels) = mpsc::channel(CHANNELS);
        let servers = options.stun.iter().map(|url| RTCIceServer {
            urls: vec![url.clone()],
            ..RTCIceServer::default()
        });
        let configuration = RTCConfigurationBuilder::new()
            .with_ice_servers(servers.collect())
            .build();
        let largest = u32::try_from(options.message_max).unwrap_or(u32::MAX);
        let mut settings = SettingEngineBuilder::new()
            .with_sctp_max_message_size(SctpMaxMessageSize::Bounded(largest));
        if options.is_local() {
            settings = settings.with_multicast_dns_mode(MulticastDnsMode::Disabled);
        }
        let settings = settings.build();
        let connection = PeerConnectionBuilder::new()
            .with_configuration(configuration)
            .with_setting_engine(settings)
            .with_handler(Arc::new(Handler {
                state: state_sender,
                channels: channel_sender,
                opened: AtomicUsize::new(0),
            }))
            .with_udp_addrs(options.bind.clone())
            .with_data_channel_send_buffer_limit(options.buffered.max(1))
            .build()
            .await?;
        let connection = Arc::new(connection);
        Ok((Self { connection, state }, channels))
    }

    /// Waits until all candidates are gathered, and returns the local session description.
    pub(crate) async fn local_description(&mut self) -> Option<RTCSessionDescription> {
        let gathered = self.state.wait_for(|state| state.gathered || state.failed);
        gathered.await.ok()?;
        self.connection.local_description().await
    }

    /// Waits until the peer connection has failed or is closed.
    pub(crate) async fn failed(&mut self) {
        let _ = self.state.wait_for(|state| state.failed).await;
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let connection = self.connection.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = connection.close().await {
                    tracing::debug!(%error, "closing a WebRTC peer connection failed");
                }
            });
        }
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").finish_non_exhaustive()
    }
}

/// Closes a channel that nobody will read: its messages would only fill memory.
pub(crate) fn close_unwanted(channel: Arc<dyn DataChannel>) {
    // In a task of its own, since the library's callbacks must not wait for the library.
    tokio::spawn(async move {
        if let Err(error) = channel.close().await {
            tracing::debug!(%error, "closing a data channel that nobody wants failed");
        }
    });
}

/// Receives the library's callbacks, which must not block.
struct Handler {
    state: watch::Sender<State>,
    channels: mpsc::Sender<Arc<dyn DataChannel>>,
    opened: AtomicUsize,
}

type CallbackFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl PeerConnectionEventHandler for Handler {
    fn on_ice_gathering_state_change<'a, 'b>(
        &'a self,
        state: RTCIceGatheringState,
    ) -> CallbackFuture<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        if state == RTCIceGatheringState::Complete {
            self.state.send_modify(|state| state.gathered = true);
        }
        Box::pin(async {})
    }

    fn on_connection_state_change<'a, 'b>(
        &'a self,
        state: RTCPeerConnectionState,
    ) -> CallbackFuture<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        if matches!(
            state,
            RTCPeerConnectionState::Failed | RTCPeerConnectionState::Closed
        ) {
            self.state.send_modify(|state| state.failed = true);
        }
        Box::pin(async {})
    }

    fn on_data_channel<'a, 'b>(&'a self, channel: Arc<dyn DataChannel>) -> CallbackFuture<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        if self.opened.fetch_add(1, Relaxed) >= CHANNELS_MAX {
            self.state.send_modify(|state| state.failed = true);
        }
        // Once the right channel is found the receiver is dropped.
        if let Err(TrySendError::Full(channel) | TrySendError::Closed(channel)) =
            self.channels.try_send(channel)
        {
            close_unwanted(channel);
        }
        Box::pin(async {})
    }
}
