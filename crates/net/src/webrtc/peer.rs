//! One peer connection: how it is set up, watched and let go of.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rtc::peer_connection::configuration::setting_engine::SctpMaxMessageSize;
use tokio::sync::{mpsc, watch};
use webrtc::data_channel::DataChannel;
use webrtc::error::Error;
use webrtc::peer_connection::{
    PeerConnection, PeerConnectionBuilder, PeerConnectionEventHandler, RTCConfigurationBuilder,
    RTCIceGatheringState, RTCIceServer, RTCPeerConnectionState, RTCSessionDescription,
    SettingEngineBuilder,
};

use super::options::ChannelOptions;

/// Channels that the other end opened and nobody looked at yet.
const CHANNELS: usize = 4;

/// Who opens more channels than this is up to no good.
const CHANNELS_MAX: usize = 16;

/// A peer connection, closed when it is dropped: by itself it would go on for ever.
pub(crate) struct Peer {
    pub(crate) connection: Arc<dyn PeerConnection>,
    pub(crate) state: watch::Receiver<State>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) gathered: bool,
    pub(crate) failed: bool,
}

impl Peer {
    /// A new one, and the channels that the other end opens.
    pub(crate) async fn new(
        options: &ChannelOptions,
    ) -> Result<(Self, mpsc::Receiver<Arc<dyn DataChannel>>), Error> {
        let (tell_state, state) = watch::channel(State::default());
        let (tell_channel, channels) = mpsc::channel(CHANNELS);
        let servers = options.stun.iter().map(|url| RTCIceServer {
            urls: vec![url.clone()],
            ..RTCIceServer::default()
        });
        let configuration = RTCConfigurationBuilder::new()
            .with_ice_servers(servers.collect())
            .build();
        let largest = u32::try_from(options.message_max).unwrap_or(u32::MAX);
        let settings = SettingEngineBuilder::new()
            .with_sctp_max_message_size(SctpMaxMessageSize::Bounded(largest))
            .build();
        let connection = PeerConnectionBuilder::new()
            .with_configuration(configuration)
            .with_setting_engine(settings)
            .with_handler(Arc::new(Handler {
                state: tell_state,
                channels: tell_channel,
                opened: AtomicUsize::new(0),
            }))
            .with_udp_addrs(options.bind.clone())
            .with_data_channel_send_buffer_limit(options.buffered.max(1))
            .build()
            .await?;
        let connection = Arc::new(connection);
        Ok((Self { connection, state }, channels))
    }

    /// Our description with all candidates in it.
    pub(crate) async fn described(&mut self) -> Option<RTCSessionDescription> {
        let gathered = self.state.wait_for(|state| state.gathered || state.failed);
        gathered.await.ok()?;
        self.connection.local_description().await
    }

    /// Waits until it failed.
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
                    tracing::debug!(%error, "a peer connection does not close");
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

/// Told by the connection's own task, which must not wait.
struct Handler {
    state: watch::Sender<State>,
    channels: mpsc::Sender<Arc<dyn DataChannel>>,
    opened: AtomicUsize,
}

type Told<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl PeerConnectionEventHandler for Handler {
    fn on_ice_gathering_state_change<'a, 'b>(&'a self, state: RTCIceGatheringState) -> Told<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        if state == RTCIceGatheringState::Complete {
            self.state.send_modify(|state| state.gathered = true);
        }
        Box::pin(async {})
    }

    fn on_connection_state_change<'a, 'b>(&'a self, state: RTCPeerConnectionState) -> Told<'b>
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

    fn on_data_channel<'a, 'b>(&'a self, channel: Arc<dyn DataChannel>) -> Told<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        if self.opened.fetch_add(1, Relaxed) >= CHANNELS_MAX {
            self.state.send_modify(|state| state.failed = true);
        }
        // Nobody looks for one any more once the right one is found: the others are let go of.
        let _ = self.channels.try_send(channel);
        Box::pin(async {})
    }
}
