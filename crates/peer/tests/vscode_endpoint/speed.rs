//! How fast it is: `cargo test --release --test vscode_endpoint -- --ignored --nocapture speed`.

use std::future::Future;
use std::time::Instant;

use breakbulk::message::vscode::{Args, Passed, Reply, Request, Value};
use breakbulk::vscode::rpc::{Config, Event, Rpc};
use breakbulk::vscode::{Actor, Actors, Endpoint, Options, Returned};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::id;

fn fast() -> Options {
    let actor = Actor::new()
        .method("$add", |incoming| async move {
            let (a, b): (i64, i64) = incoming.args()?;
            Returned::json(&(a + b))
        })
        .method("$echo", |incoming| async move {
            match incoming.values().ok().and_then(|mut args| args.pop()) {
                Some(passed) => Ok(Returned::Value(passed)),
                None => Ok(Returned::Undefined),
            }
        });
    Options {
        actors: Actors::new().add(id(), "Fast", actor),
        ..Options::default()
    }
}

/// Seconds that this thread was on a processor: on a busy machine the clock says little.
fn busy() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos.unwrap_or(0.0) / 1e9
}

fn pure(calls: u32, window: u32) -> f64 {
    let (mut a, mut b) = (Rpc::new(Config::default()), Rpc::new(Config::default()));
    let mut there = breakbulk::vscode::ipc::Protocol::new(1 << 20);
    let mut back = breakbulk::vscode::ipc::Protocol::new(1 << 20);
    let mut inflows = [1, 2].map(|_| breakbulk::vscode::ipc::Protocol::new(1 << 20));
    let (begun, was_busy) = (Instant::now(), busy());
    let mut done = 0;
    while done < calls {
        for _ in 0..window {
            let args = breakbulk::message::vscode::to_json(&(4, 1)).unwrap();
            let request = Request {
                rpc_id: id(),
                method: breakbulk::message::vscode::Text::from_static("$add"),
                args: Args::Json(args),
                cancellation: false,
            };
            a.call(begun, request).unwrap();
        }
        while let Some(packet) = a.poll_transmit() {
            there.send(&packet).unwrap();
        }
        while let Some(mut bytes) = there.outgoing().pop(usize::MAX) {
            while let Some(message) = inflows[0].handle_bytes(&mut bytes).unwrap() {
                b.handle_message(begun, message);
            }
        }
        while let Some(event) = b.poll_event() {
            if let Event::Request { id, request } = event {
                let Args::Json(json) = &request.args else {
                    panic!()
                };
                let (x, y): (i64, i64) = serde_json::from_str(json.as_str()).unwrap();
                let sum = breakbulk::message::vscode::to_json(&(x + y)).unwrap();
                b.reply(id, Reply::OkJson(sum)).unwrap();
            }
        }
        while let Some(packet) = b.poll_transmit() {
            back.send(&packet).unwrap();
        }
        while let Some(mut bytes) = back.outgoing().pop(usize::MAX) {
            while let Some(message) = inflows[1].handle_bytes(&mut bytes).unwrap() {
                a.handle_message(begun, message);
            }
        }
        while let Some(event) = a.poll_event() {
            done += u32::from(matches!(event, Event::Reply { .. }));
        }
    }
    f64::from(calls) / (busy() - was_busy)
}

async fn pipelined(client: &Endpoint, calls: usize, window: usize) -> f64 {
    let remote = client.remote(id());
    let begun = Instant::now();
    let mut under_way = std::collections::VecDeque::with_capacity(window);
    for number in 0..calls {
        under_way.push_back(remote.call(
            breakbulk::message::vscode::Text::from_static("$add"),
            &(number, 1),
        ));
        if under_way.len() == window {
            // Half of them at once, so that writes hold many.
            for call in under_way.drain(..window / 2) {
                call.await.unwrap();
            }
        }
    }
    for call in under_way {
        call.await.unwrap();
    }
    calls as f64 / begun.elapsed().as_secs_f64()
}

async fn sequential(client: &Endpoint, calls: usize) -> f64 {
    let remote = client.remote(id());
    let begun = Instant::now();
    for number in 0..calls {
        remote.call("$add", &(number, 1)).await.unwrap();
    }
    calls as f64 / begun.elapsed().as_secs_f64()
}

async fn buffers(client: &Endpoint, size: usize, count: usize) -> f64 {
    let remote = client.remote(id());
    let buffer = Bytes::from(vec![7; size]);
    let begun = Instant::now();
    for _ in 0..count {
        let args = vec![Passed::Plain(Value::Buffer(buffer.clone()))];
        let answer = remote.call_values("$echo", args).await.unwrap();
        assert_eq!(answer.buffer().unwrap().len(), size);
    }
    2.0 * (size * count) as f64 / begun.elapsed().as_secs_f64() / 1e6
}

/// The same bytes there and back without any protocol.
async fn raw(size: usize, count: usize) -> f64 {
    let (mut client, mut server) = tcp().await;
    let echo = tokio::spawn(async move {
        let mut bytes = vec![0; size];
        while server.read_exact(&mut bytes).await.is_ok() {
            server.write_all(&bytes).await.unwrap();
        }
    });
    let mut bytes = vec![7; size];
    let begun = Instant::now();
    for _ in 0..count {
        client.write_all(&bytes).await.unwrap();
        client.read_exact(&mut bytes).await.unwrap();
    }
    let seconds = begun.elapsed().as_secs_f64();
    drop(client);
    echo.await.unwrap();
    count as f64 / seconds
}

async fn tcp() -> (tokio::net::TcpStream, tokio::net::TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (client, server) = tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
    let (client, server) = (client.unwrap(), server.unwrap().0);
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    (client, server)
}

fn block_on(threads: usize, work: impl Future<Output = ()>) {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.enable_all().build().unwrap().block_on(work);
}

#[test]
#[ignore = "measures"]
fn speed() {
    for window in [1, 100, 1000] {
        let rate = pure(500_000, window);
        println!("pure, window {window}: {rate:.0} calls per busy second");
    }
    for threads in [1, 2] {
        println!("-- {threads} threads");
        block_on(threads, async {
            let (left, right) = tokio::io::duplex(1 << 20);
            let _host = Endpoint::over_stream(left, fast());
            let client = Endpoint::over_stream(right, fast());
            for window in [100, 1000, 4000] {
                let was_busy = busy();
                let rate = pipelined(&client, 500_000, window).await;
                let alone = 500_000.0 / (busy() - was_busy);
                println!("memory, window {window}: {rate:.0} calls/s, {alone:.0} per busy second");
            }
            println!(
                "memory, sequential: {:.0} calls/s",
                sequential(&client, 100_000).await
            );
        });
        block_on(threads, async {
            let (client, server) = tcp().await;
            let _host = Endpoint::over_stream(server, fast());
            let client = Endpoint::over_stream(client, fast());
            for window in [100, 1000, 4000] {
                let was_busy = busy();
                let rate = pipelined(&client, 500_000, window).await;
                let alone = 500_000.0 / (busy() - was_busy);
                println!("tcp, window {window}: {rate:.0} calls/s, {alone:.0} per busy second");
            }
            println!(
                "tcp, sequential: {:.0} calls/s",
                sequential(&client, 20_000).await
            );
            println!(
                "tcp, raw ping-pong of 30 bytes: {:.0}/s",
                raw(30, 20_000).await
            );
            println!(
                "tcp, 16 MB there and back: {:.0} MB/s",
                buffers(&client, 16_000_000, 20).await
            );
            println!(
                "tcp, raw 16 MB there and back: {:.0} MB/s",
                raw(16_000_000, 20).await * 32.0
            );
        });
    }
}
