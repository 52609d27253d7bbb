//! Many callers at once that call, fail and give up at random: every answer goes to its own caller.

use std::time::Duration;

use breakbulk_tywrap::{CallError, Host};

use super::common::{host, ordinary};

/// A small pseudo-random generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_the_answer_of_another() {
    let seed = std::env::var("BREAKBULK_SEED").map_or(7, |seed| seed.parse().unwrap());
    println!("BREAKBULK_SEED={seed}");
    let host = host(|config| config.timeout = Some(Duration::from_secs(60)));
    let callers: Vec<_> = (1..=6)
        .map(|caller| {
            let random = Random(seed * 1_000_003 + caller * 7919);
            tokio::spawn(call_at_random(host.clone(), random))
        })
        .collect();
    let mut answers = 0;
    for caller in callers {
        answers += caller.await.unwrap();
    }
    assert!(answers > 50, "only {answers} answers came");
    ordinary(&host, 100).await;
}

async fn call_at_random(host: Host, mut random: Random) -> usize {
    let mut answers = 0;
    for round in 0..60 {
        let mark = random.below(1 << 40);
        let text = format!("\"{mark}{}\"", "é".repeat(random.below(2000) as usize));
        let function = match random.below(40) {
            0 => "die",
            1 => "dup_seq",
            2 => "partial_then_exit",
            3 => "pollution",
            _ => "echo",
        };
        let call = host.call("t", function, format!("[{text}]"), None);
        let outcome = if random.below(4) == 0 {
            // The call is dropped after some turns of the runtime.
            let turns = random.below(200);
            let leave = async {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                () = leave => continue,
                outcome = call => outcome,
            }
        } else {
            call.await
        };
        match outcome {
            Ok(returned) if function == "echo" => {
                let value: String = serde_json::from_str(returned.json()).unwrap();
                let sent: String = serde_json::from_str(&text).unwrap();
                assert_eq!(value, sent, "round {round}");
                answers += 1;
            }
            Ok(returned) => panic!("{function} answered {returned:?}"),
            // Another caller may have ended the bridge.
            Err(CallError::Exited { .. } | CallError::Breach { .. }) => {}
            Err(error) => panic!("round {round}, {function}: {error}"),
        }
    }
    answers
}
