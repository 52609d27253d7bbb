//! A transport of one's own, here a channel that leads back, below a connection: own_transport
use breakbulk::{link::*, net::*, wire::Loro};
use tokio::sync::mpsc::{Receiver, Sender, channel};
struct Half<T>(T);
struct Loopback(Half<Receiver<Frame>>, Half<Sender<Frame>>);
impl Transport for Loopback {
    type Source = Half<Receiver<Frame>>;
    type Sink = Half<Sender<Frame>>;
    fn carries(&self, _: Carries) -> bool {
        true // text frames and binary ones
    }
    fn split(self) -> (Self::Source, Self::Sink) {
        (self.0, self.1)
    }
}
impl Source for Half<Receiver<Frame>> {
    async fn next(&mut self) -> Incoming {
        let (code, reason) = (1001, "the channel is closed".to_owned());
        let frame = self.0.recv().await.map(Incoming::Frame);
        frame.unwrap_or(Incoming::Closed(Closed { code, reason }))
    }
}
impl Sink for Half<Sender<Frame>> {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        self.0.send(frame).await.map_err(|_| Lost("closed".into()))
    }
    async fn close(&mut self, _: u16, _: &str) {}
}
#[tokio::main]
async fn main() -> Result<(), Mismatch> {
    let (tx, rx) = channel(4); // backpressure: a full channel holds up its sender
    let (wire, budget) = (std::sync::Arc::new(Loro), Budget::new(64 << 20));
    let mut link = Link::new(wire.clone(), wire, Loro::config(), budget, [7; 32]);
    link.set_cap(Cap::frame(1000)); // what the transport lets through
    let connection = Connection::open(link, Loopback(Half(rx), Half(tx)), Options::default())?;
    drop(connection.send(Outgoing::new(vec![7; 100_000])));
    while !matches!(connection.event().await, Some(Event::Message(_)) | None) {}
    println!("100,000 bytes in frames of 1,000");
    Ok(())
}
