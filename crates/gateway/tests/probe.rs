//! A probe finds planted caps to the byte, and tells how they refuse.

use std::time::Duration;

use breakbulk_gateway::probe::{self, Finding, Refusal, Report};
use breakbulk_gateway::{Config, Event, Plan, Stop};
use breakbulk_testkit::bad_path::{BadPath, Refusal as Planted, Way, Weather};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The largest message that is tried here: silence takes long, and growing is tested without sockets.
const MOST: usize = 1 << 20;

fn config() -> probe::Config {
    probe::Config::default().with(|config| {
        config.most = MOST;
        config.patience = Duration::from_millis(250);
    })
}

/// An end that answers probes, and what stops it.
struct Answering {
    address: String,
    stop: Stop,
    task: JoinHandle<()>,
}

impl Answering {
    async fn start(endpoint: &str, config: Config) -> Self {
        let endpoint = endpoint.parse().unwrap();
        Self::of(|stop, tell| async move {
            probe::listen(endpoint, config, &stop, tell).await.unwrap();
        })
        .await
    }

    async fn gateway(endpoint: &str, config: Config) -> Self {
        let plan = Plan::new(
            endpoint.parse().unwrap(),
            "exec:cat".parse().unwrap(),
            config,
        );
        let plan = plan.unwrap();
        Self::of(|stop, tell| async move { plan.run(&stop, tell).await.unwrap() }).await
    }

    async fn of<F: Future<Output = ()> + Send + 'static>(
        run: impl FnOnce(Stop, Box<dyn Fn(Event) + Send + Sync>) -> F,
    ) -> Self {
        let (tell, told) = oneshot::channel();
        let tell = std::sync::Mutex::new(Some(tell));
        let stop = Stop::new();
        let tell = move |event| {
            if let Event::Listening(address) = event
                && let Some(tell) = tell.lock().unwrap().take()
            {
                tell.send(address).unwrap();
            }
        };
        let task = tokio::spawn(run(stop.clone(), Box::new(tell)));
        let address = told.await.unwrap();
        Self {
            address,
            stop,
            task,
        }
    }

    fn host(&self) -> String {
        let (_, host) = self.address.split_once("://").unwrap();
        host.to_owned()
    }

    async fn stop(self) {
        self.stop.stop();
        self.task.await.unwrap();
    }
}

async fn probed(path: &BadPath) -> Report {
    let endpoint = format!("ws://{}/", path.address()).parse().unwrap();
    probe::run(endpoint, config(), |_| {}).await.unwrap()
}

fn cap(bytes: usize, refusal: Refusal) -> Finding {
    Finding::Cap { bytes, refusal }
}

fn close(code: u16, what: &str, cap: usize) -> Refusal {
    Refusal::Close {
        code,
        reason: format!("{what} of {} bytes over the cap of {cap}", cap + 1),
    }
}

// PROG-23
#[tokio::test]
async fn planted_caps_are_found_to_the_byte_with_each_kind_of_refusal() {
    let answering = Answering::start("ws://0", Config::default()).await;
    // The cap up and down, what is planted, and what is told of one byte more.
    type Told = fn(usize) -> Refusal;
    let cases: [(usize, usize, Planted, Told); 16] = [
        (100_003, 70_001, Planted::Close(1009), |cap| {
            close(1009, "message", cap)
        }),
        (32_768, 999_999, Planted::Close(1009), |cap| {
            close(1009, "message", cap)
        }),
        (65_535, 65_536, Planted::Close(1008), |cap| {
            close(1008, "message", cap)
        }),
        (12_345, 300, Planted::Close(1000), |cap| {
            close(1000, "message", cap)
        }),
        (128_000, 131_072, Planted::Close(4413), |cap| {
            close(4413, "message", cap)
        }),
        (10_000, 256, Planted::End, |_| Refusal::Ended),
        (257, 262_145, Planted::End, |_| Refusal::Ended),
        (500_009, 1023, Planted::End, |_| Refusal::Ended),
        (16_384, 16_383, Planted::Reset, |_| Refusal::Reset),
        (1024, 777_777, Planted::Reset, |_| Refusal::Reset),
        (250_001, 4097, Planted::Reset, |_| Refusal::Reset),
        (64_000, 65_536, Planted::Silence, |_| Refusal::Silence),
        (9_999, 1_000_000, Planted::Drop, |_| Refusal::Silence),
        (333_333, 2_000, Planted::Drop, |_| Refusal::Silence),
        (18_000, 40_001, Planted::Truncate, |cap| {
            Refusal::Truncated { arrived: cap }
        }),
        (888_888, 5_555, Planted::Truncate, |cap| {
            Refusal::Truncated { arrived: cap }
        }),
    ];
    for (up, down, planted, told) in cases {
        let way = |bytes: usize| Way {
            message_cap: Some(bytes as u64),
            refusal: planted,
            ..Way::default()
        };
        let weather = Weather {
            from_client: way(up),
            from_target: way(down),
            ..Weather::default()
        };
        let path = BadPath::start(answering.host(), weather).await.unwrap();
        let report = probed(&path).await;
        for (name, bytes, found) in [("up", up, &report.up), ("down", down, &report.down)] {
            let expected = cap(bytes, told(bytes));
            let context = format!("{name} {bytes}, {planted:?}: {report:#?}");
            assert_eq!(found.text.message, expected, "text {context}");
            assert_eq!(found.text.frame, None, "text {context}");
            let binary = found.binary.as_ref().unwrap();
            assert_eq!(binary.message, expected, "binary {context}");
            assert_eq!(binary.frame, None, "binary {context}");
        }
        assert_eq!(report.advice.max_frame, Some(up.min(down)));
        assert!(report.is_usable());
    }
    answering.stop().await;
}

#[tokio::test]
async fn caps_of_frames_are_told_from_caps_of_messages() {
    let answering = Answering::start("ws://0", Config::default()).await;
    for (message, frame, text_only) in [
        (Some(131_072), 32_768, true),
        (Some(100_003), 300, false),
        (None, 65_535, false),
    ] {
        let weather = Weather::both_ways(Way {
            message_cap: message.map(|cap: usize| cap as u64),
            frame_cap: Some(frame as u64),
            text_only,
            ..Way::default()
        });
        let path = BadPath::start(answering.host(), weather).await.unwrap();
        let report = probed(&path).await;
        for way in [&report.up, &report.down] {
            let expected = match message {
                Some(message) => Some(message),
                None => Some(MOST),
            };
            assert_eq!(way.text.message.passes(), expected, "{report:#?}");
            let found = way.text.frame.clone().unwrap();
            assert_eq!(found, cap(frame, close(1009, "frame", frame)));
            let binary = way.binary.as_ref().unwrap();
            match text_only {
                true => {
                    let reason = "binary message on a path for text".to_owned();
                    let refusal = Refusal::Close { code: 1003, reason };
                    let nothing = Finding::Nothing {
                        tried: 256,
                        refusal,
                    };
                    assert_eq!(binary.message, nothing);
                }
                false => assert_eq!(*binary, way.text, "{report:#?}"),
            }
        }
        assert_eq!(report.advice.fragment, Some(frame));
        assert_eq!(report.advice.max_frame, message);
        let preset = report.advice.preset;
        assert_eq!(preset.is_some(), message != Some(100_003), "{preset:?}");
    }
    answering.stop().await;
}

#[tokio::test]
async fn a_path_without_caps_takes_few_messages() {
    let answering = Answering::start("ws://0", Config::default()).await;
    let path = BadPath::start(answering.host(), Weather::default())
        .await
        .unwrap();
    let report = probed(&path).await;
    let no_cap = Finding::NoCap { tried: MOST };
    for way in [&report.up, &report.down] {
        assert_eq!(way.text.message, no_cap);
        assert_eq!(way.binary.as_ref().unwrap().message, no_cap);
    }
    assert_eq!(report.connections, 1);
    assert!(report.questions < 20, "{report:#?}");
    assert!(report.up_rate.is_some() && report.down_rate.is_some());
    assert_eq!(report.advice.options(), "");
    answering.stop().await;
}

#[tokio::test]
async fn a_path_that_lets_nothing_through_is_told_as_broken() {
    let answering = Answering::start("ws://0", Config::default()).await;
    let mut weather = Weather::default();
    weather.from_target = Way {
        // The words of the other end pass, and nothing that is measured.
        message_cap: Some(200),
        refusal: Planted::Drop,
        ..Way::default()
    };
    let path = BadPath::start(answering.host(), weather).await.unwrap();
    let report = probed(&path).await;
    assert!(!report.is_usable());
    let nothing = Finding::Nothing {
        tried: 256,
        refusal: Refusal::Silence,
    };
    assert_eq!(report.down.text.message, nothing);
    answering.stop().await;
}

/// A gateway answers, with the right token alone, and has no smaller limit for probes than for itself.
#[tokio::test]
async fn a_gateway_answers_whom_it_lets_in() {
    let token = |text: &str| Some(breakbulk_gateway::token(text).unwrap());
    let secret = Config::default().with(|config| config.token = token("secret"));
    let gateway = Answering::gateway("ws://0?max-frame=50KB", secret).await;
    let path = BadPath::start(gateway.host(), Weather::capped(100_003)).await;
    let path = path.unwrap();
    let endpoint = format!("ws://{}/", path.address());
    let ask = |given| {
        let config = config().with(|config| config.token = given);
        probe::run(endpoint.parse().unwrap(), config, |_| {})
    };
    let report = ask(token("secret")).await.unwrap();
    assert_eq!(report.up.text.message.cap(), Some(100_003));
    assert_eq!(report.down.text.message.cap(), Some(100_003));
    for wrong in [None, token("guess")] {
        let error = ask(wrong).await.unwrap_err();
        assert!(error.to_string().contains("401"), "{error}");
    }
    gateway.stop().await;

    let off = Config::default().with(|config| config.probes = false);
    let gateway = Answering::gateway("ws://0", off).await;
    let endpoint = gateway.address.parse().unwrap();
    let error = probe::run(endpoint, config(), |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("answers no probes"), "{error}");
    gateway.stop().await;
}
