//! A probe finds planted caps to the byte, and tells how they refuse.

use std::time::Duration;

use breakbulk_gateway::Config;
use breakbulk_gateway::probe::{self, Finding, Refusal, Report};
use breakbulk_testkit::bad_path::{BadPath, Refusal as Planted, Way, Weather};
use breakbulk_testkit::http_refusal::{HttpCaps, HttpPath, HttpRefusal};
use breakbulk_testkit::tls_front::TlsFront;

use crate::common::{Answering, MOST, config};

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

// PATH-2
#[tokio::test]
async fn planted_caps_are_found_to_the_byte_with_each_kind_of_refusal() {
    let answering = Answering::start("ws://0", Config::default()).await;
    // The caps up and down, what the path does to a larger message, and what a probe tells about one more
    // byte.
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

// PATH-2
#[tokio::test]
async fn planted_caps_of_bodies_are_found_with_each_kind_of_refusal() {
    let answering = Answering::start("http://0/probe", Config::default()).await;
    let (host, _) = answering
        .host()
        .split_once('/')
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    let status = |code| Refusal::Status { code };
    for (request, response, planted, told) in [
        (100_003, 70_001, HttpRefusal::Status(413), Some(status(413))),
        (
            65_536,
            4096,
            HttpRefusal::EarlyStatus(413),
            Some(status(413)),
        ),
        (300, 999_999, HttpRefusal::Status(503), Some(status(503))),
        (12_345, 54_321, HttpRefusal::Status(400), Some(status(400))),
        (500_000, 256, HttpRefusal::End, Some(Refusal::Ended)),
        (8192, 16_383, HttpRefusal::Reset, Some(Refusal::Reset)),
        (
            32_000,
            128_000,
            HttpRefusal::Silence,
            Some(Refusal::Silence),
        ),
        (77_777, 2000, HttpRefusal::Truncate, None),
    ] {
        let caps = HttpCaps {
            request,
            response,
            refusal: planted,
        };
        let path = HttpPath::start(host.parse().unwrap(), caps).await.unwrap();
        let target = format!("http://{}/probe", path.address()).parse().unwrap();
        let report = probe::run(target, config(), |_| {}).await.unwrap();
        for (bytes, found) in [(request, &report.up), (response, &report.down)] {
            let cut_off = Refusal::Truncated { arrived: bytes };
            let expected = cap(bytes, told.clone().unwrap_or(cut_off));
            assert_eq!(found.text.message, expected, "{planted:?}: {report:#?}");
            assert_eq!((&found.text.frame, &found.binary), (&None, &None));
        }
    }
    answering.stop().await;
}

// PATH-2
#[tokio::test]
async fn a_tls_alert_is_told_as_one() {
    let answering = Answering::start("ws://0", Config::default()).await;
    let way = |bytes| Way {
        message_cap: Some(bytes),
        refusal: Planted::Reset,
        ..Way::default()
    };
    let weather = Weather {
        from_client: way(16_500),
        from_target: way(70_000),
        ..Weather::default()
    };
    let path = BadPath::start(answering.host(), weather).await.unwrap();
    let front = TlsFront::start(path.address()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("cert.pem");
    std::fs::write(&authority, front.certificate()).unwrap();
    let target = format!("wss://{}/?ca={}", front.address(), authority.display());
    let target = target.parse().unwrap();
    let report = probe::run(target, config(), |_| {}).await.unwrap();
    for (bytes, found) in [(16_500, &report.up), (70_000, &report.down)] {
        let Finding::Cap {
            bytes: cap,
            refusal: Refusal::TlsAlert(alert),
        } = &found.text.message
        else {
            panic!("{report:#?}");
        };
        assert_eq!(*cap, bytes);
        assert!(!alert.is_empty());
    }
    answering.stop().await;
}

// PATH-2
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

// PATH-2
#[tokio::test]
async fn a_path_slower_than_the_least_patience_is_not_taken_for_silent() {
    let answering = Answering::start("ws://0", Config::default()).await;
    let weather = Weather::both_ways(Way {
        message_cap: Some(10_000),
        refusal: Planted::Drop,
        delay: Duration::from_millis(30),
        pace: Some(400_000),
        ..Way::default()
    });
    let path = BadPath::start(answering.host(), weather).await.unwrap();
    let target = format!("ws://{}/", path.address()).parse().unwrap();
    let impatient = config().with(|config| {
        config.patience = Duration::from_millis(1);
        config.most = 20_000;
    });
    let report = probe::run(target, impatient, |_| {}).await.unwrap();
    for way in [&report.up, &report.down] {
        assert_eq!(
            way.text.message,
            cap(10_000, Refusal::Silence),
            "{report:#?}"
        );
    }
    assert!(report.round_trip >= Duration::from_millis(60));
    assert!(report.up_rate.is_some() && report.down_rate.is_some());
    answering.stop().await;
}

#[tokio::test]
async fn a_path_that_lets_nothing_through_is_told_as_broken() {
    let answering = Answering::start("ws://0", Config::default()).await;
    let weather = Weather {
        from_target: Way {
            // Small messages of the other end pass, and no measured message does.
            message_cap: Some(200),
            refusal: Planted::Drop,
            ..Way::default()
        },
        ..Weather::default()
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
