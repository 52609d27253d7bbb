//! What a million connections would need: calculated from measured figures, and by a simulation of the two
//! worst moments, when a member dies and when all connections are cut at once.
//!
//! The simulation is pure: a seed, steps of 10 ms, members that accept at the measured rate, and clients that
//! reconnect like tunnels.

use serde_json::Value;

use super::Failure;

/// The measured figures.
struct Measured {
    /// Memory of the process and of the system for an idle connection, in bytes.
    bytes: f64,
    /// Connections that one core accepts in a second, if it does nothing else.
    accepts: f64,
    /// Processor time of a request of 1 KB, in seconds.
    request: f64,
}

/// The assumptions about each machine and about the clients.
const CONNECTIONS: f64 = 1e6;
const CORES: f64 = 8.0;
const MEMORY: f64 = 32.0 * (1u64 << 30) as f64;
/// The least memory that a socket is assumed to take, in bytes, if others disturbed the measurement.
const SOCKETS: f64 = 5_000.0;
/// The part of a machine that is planned for: the rest is for messages under way, and for a member that died.
const PLANNED: f64 = 0.5;
/// Requests of one client in a second, on average.
const REQUESTS: f64 = 0.05;
/// Actions of 1 KB that are published in a second, in all.
const ACTIONS: f64 = 1000.0;
const REPLICAS: f64 = 3.0;
/// How often both ends of a tunnel's connection at NATS send a heartbeat, in seconds.
const HEARTBEAT: f64 = 10.0;

/// The pauses of a tunnel before it reconnects, in seconds: the first attempt is at once, later pauses grow.
const FIRST_PAUSE: f64 = 0.1;
const LONGEST_PAUSE: f64 = 5.0;

/// Connections that wait in the queue of a listening socket.
const BACKLOG: usize = 4096;

/// So short that a full queue lasts for it: otherwise the queue would bound how fast clients are accepted.
const STEP: f64 = 0.01;
const SEED: u64 = 0x5eed;

pub(crate) fn run(file: &str) -> Result<(), Failure> {
    let measured = Measured::read(file)?;
    let Measured {
        bytes,
        accepts,
        request,
    } = measured;
    println!(
        "measured: {bytes:.0} bytes for an idle connection, {accepts:.0} accepted by a core in a second, {:.0} µs of processor time for a request of 1 KB",
        request * 1e6
    );
    let by_memory = CONNECTIONS * bytes / (MEMORY * PLANNED);
    let by_work = CONNECTIONS * REQUESTS * request / (CORES * PLANNED);
    let members = (by_memory.max(by_work).ceil() + 1.0).max(3.0) as usize;
    println!(
        "members of {CORES} cores and {:.0} GiB, half of each planned for: {by_memory:.1} by memory ({:.1} GB in all), {by_work:.1} by {:.0} requests a second; with one more that may die: {members}",
        MEMORY / (1u64 << 30) as f64,
        CONNECTIONS * bytes / 1e9,
        CONNECTIONS * REQUESTS,
    );
    let of_member = CONNECTIONS / members as f64;
    println!(
        "descriptors of a member: {of_member:.0} (LimitNOFILE), twice that if its clients have targets of their own"
    );
    println!(
        "JetStream, {ACTIONS:.0} actions of 1 KB a second: {:.0} writes of {:.1} MB/s to disks with {REPLICAS} replicas, {:.0} reads of {:.1} MB/s by {members} members; clients do not count",
        ACTIONS * REPLICAS,
        ACTIONS * REPLICAS / 1024.0,
        ACTIONS * members as f64,
        ACTIONS * members as f64 / 1024.0,
    );
    for members in [members, 2 * members, 4 * members] {
        let core_rate = accepts * CORES;
        let died = storm(CONNECTIONS as usize / members, members - 1, core_rate);
        println!("{members} members, one dies: {}", died.sentence());
        let all = storm(CONNECTIONS as usize, members, core_rate);
        let forwarded = CONNECTIONS * (members - 1) as f64 / members as f64;
        println!(
            "{members} members, all lines are cut: {}; {forwarded:.0} connections are then forwarded, whose heartbeats are {:.0} messages a second at NATS",
            all.sentence(),
            forwarded * 2.0 / HEARTBEAT,
        );
    }
    println!("seed {SEED:#x}");
    Ok(())
}

impl Measured {
    /// The figures of one process with one thread, as `crowd --json` wrote them.
    fn read(file: &str) -> Result<Self, Failure> {
        let all: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        let one = all
            .get("one")
            .ok_or("the file has no measurement \"one\"")?;
        let number = |name: &str| one[name].as_f64().ok_or(format!("no {name}"));
        Ok(Self {
            bytes: number("residentBytes")? + number("socketBytes")?.max(SOCKETS),
            accepts: number("clients")? / number("acceptCoreSeconds")?,
            request: number("requestMicros")? / 1e6,
        })
    }
}

/// How the clients reconnected.
struct Storm {
    half: f64,
    most: f64,
    all: f64,
    refused: usize,
}

impl Storm {
    fn sentence(&self) -> String {
        format!(
            "half of the clients are back after {:.1} s, 99 % after {:.1} s, all after {:.1} s; {} attempts found a full queue",
            self.half, self.most, self.all, self.refused
        )
    }
}

/// Simulates this many clients that reconnect to this many members, each of which accepts at this rate.
fn storm(clients: usize, members: usize, rate: f64) -> Storm {
    let mut random = SEED | 1;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1u64 << 53) as f64
    };
    // When each client tries next, and how often it has tried, in slots of one step each.
    let mut due: Vec<Vec<u8>> = vec![Vec::new()];
    let put = |due: &mut Vec<Vec<u8>>, at: f64, tries: u8| {
        let slot = (at / STEP) as usize;
        if due.len() <= slot {
            due.resize_with(slot + 1, Vec::new);
        }
        due[slot].push(tries);
    };
    for _ in 0..clients {
        put(&mut due, 0.0, 1);
    }
    let mut queues = vec![0_usize; members];
    let mut credit = 0.0;
    let (mut back, mut refused) = (0, 0);
    let (mut half, mut most) = (0.0, 0.0);
    let mut slot = 0;
    while back < clients {
        let now = slot as f64 * STEP;
        let coming = due.get_mut(slot).map(std::mem::take).unwrap_or_default();
        for tries in coming {
            let member = (next() * members as f64) as usize % members;
            if queues[member] < BACKLOG {
                queues[member] += 1;
                continue;
            }
            refused += 1;
            let pause = (FIRST_PAUSE * f64::from(1_u32 << (tries - 1).min(10))).min(LONGEST_PAUSE);
            put(
                &mut due,
                now + STEP + pause * (1.0 - next() / 2.0),
                tries.saturating_add(1),
            );
        }
        credit += rate * STEP;
        let each = credit as usize;
        credit -= each as f64;
        for queue in &mut queues {
            let served = each.min(*queue);
            *queue -= served;
            back += served;
        }
        let share = back as f64 / clients.max(1) as f64;
        half = if share < 0.5 { now + STEP } else { half };
        most = if share < 0.99 { now + STEP } else { most };
        slot += 1;
    }
    Storm {
        half,
        most,
        all: slot as f64 * STEP,
        refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_accept_faster_have_their_clients_back_sooner() {
        let slow = storm(20_000, 2, 1_000.0);
        let fast = storm(20_000, 2, 4_000.0);
        assert!(fast.all < slow.all && fast.half < slow.half);
        // Two members that each accept 1,000 a second need at least ten seconds for 20,000 clients.
        assert!(slow.all >= 10.0 && slow.all < 30.0, "{}", slow.sentence());
        assert!(slow.refused > 0);
        assert_eq!(storm(100, 2, 1_000.0).refused, 0);
    }
}
