//! A load balancer for TCP that sends each new connection to the next member that takes it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) struct Balancer {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    members: Vec<String>,
    next: AtomicUsize,
    /// The only member that connections go to, if there is one.
    only: Mutex<Option<usize>>,
    sent: Vec<AtomicUsize>,
    open: Mutex<Vec<TcpStream>>,
}

impl Balancer {
    /// Members are given as URLs.
    pub(crate) fn start(members: impl Iterator<Item = String>) -> Self {
        let authority = |url: String| {
            let rest = url.split_once("://").unwrap().1;
            rest.split('/').next().unwrap().to_owned()
        };
        let members: Vec<_> = members.map(authority).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            sent: members.iter().map(|_| AtomicUsize::new(0)).collect(),
            members,
            next: AtomicUsize::new(0),
            only: Mutex::default(),
            open: Mutex::default(),
        });
        let accepting = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accepting.serve(&client);
            }
        });
        Self { address, shared }
    }

    /// How many connections each member got.
    pub(crate) fn sent(&self) -> Vec<usize> {
        let sent = self.shared.sent.iter();
        sent.map(|sent| sent.load(Ordering::SeqCst)).collect()
    }

    /// From now on all connections go to this member.
    pub(crate) fn only(&self, member: usize) {
        *self.shared.only.lock().unwrap() = Some(member);
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        for open in self.shared.open.lock().unwrap().drain(..) {
            let _ = open.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn serve(&self, client: &TcpStream) {
        for _ in 0..self.members.len() {
            let next = self.next.fetch_add(1, Ordering::SeqCst) % self.members.len();
            let number = self.only.lock().unwrap().unwrap_or(next);
            let Ok(member) = TcpStream::connect(&self.members[number]) else {
                continue;
            };
            self.sent[number].fetch_add(1, Ordering::SeqCst);
            for stream in [client, &member] {
                stream.set_nodelay(true).unwrap();
                self.open.lock().unwrap().push(stream.try_clone().unwrap());
            }
            let (from, to) = (client.try_clone().unwrap(), member.try_clone().unwrap());
            thread::spawn(move || copy(from, to));
            let (from, to) = (member, client.try_clone().unwrap());
            thread::spawn(move || copy(from, to));
            return;
        }
    }
}

/// Copies until one side ends; then both do.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
