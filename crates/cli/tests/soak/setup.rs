//! The gateways of the soak, the paths between them, and where clients connect.
//!
//! Two near gateways take clients and carry them by tunnels to two far ones, which have the targets. One of
//! each two is restarted again and again.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use breakbulk_testkit::bad_path::{BadPath, Weather};

use crate::client::Door;
use crate::ledger::Way;
use crate::member::{Member, own_address};
use crate::work::{Diary, target};

const NEAR: [&str; 2] = ["near-a", "near-b"];
const FAR: [&str; 2] = ["far-a", "far-b"];

/// Whether a member is restarted in the middle of the soak.
pub(crate) fn is_restarted(member: &str) -> bool {
    member.ends_with("-b")
}

pub(crate) struct Setup {
    pub(crate) members: Vec<Arc<Member>>,
    pub(crate) paths: Vec<(Way, BadPath)>,
    /// Where targets write down each request.
    pub(crate) diary: PathBuf,
    address: IpAddr,
    sockets: tempfile::TempDir,
}

/// A file of a member: what a reload finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Another route is there, too.
    pub(crate) more: bool,
    /// Counts the changes of the route `narrow`.
    pub(crate) changes: u64,
}

impl Setup {
    /// Starts everything.
    pub(crate) async fn new(folder: &Path) -> Self {
        let sockets = tempfile::tempdir().unwrap();
        let address = own_address();
        let diary = sockets.path().join("diary");
        target(at(address, 100), Diary::new(&diary)).await;
        let members = [NEAR, FAR].concat().into_iter().enumerate();
        let members = members.map(|(number, name)| {
            let admin = at(address, 200 + number as u16);
            Arc::new(Member::new(name, sockets.path(), folder, admin))
        });
        let mut setup = Self {
            members: members.collect(),
            paths: Vec::new(),
            diary,
            address,
            sockets,
        };
        for (way, port) in ways() {
            let weather = Weather {
                connections: 1000,
                ..Weather::default()
            };
            let path = BadPath::start(at(address, port), weather).await.unwrap();
            setup.paths.push((way, path));
        }
        // The far ones first.
        for member in setup.members.iter().rev() {
            member.configure(&setup.routes(
                member.name,
                Variant {
                    more: false,
                    changes: 0,
                },
            ));
            let member = member.clone();
            tokio::task::spawn_blocking(move || member.start())
                .await
                .unwrap();
        }
        setup
    }

    /// Where each client connects.
    pub(crate) fn clients(&self, count: usize) -> Vec<(Way, Door)> {
        // How many of twenty clients take each route.
        let shares = [("lines", 11), ("narrow", 4), ("mcp", 2), ("plain", 3)];
        let places = shares
            .into_iter()
            .flat_map(|(route, share)| std::iter::repeat_n(route, share));
        let places: Vec<&str> = places.collect();
        let clients = (0..count).map(|number| {
            let route = places[number % places.len()];
            let ways = self.paths.iter().filter(|(way, _)| way.route == route);
            let ways: Vec<_> = ways.collect();
            let (way, path) = ways[number / places.len() % ways.len()];
            (*way, self.door(*way, path))
        });
        clients.collect()
    }

    fn door(&self, way: Way, path: &BadPath) -> Door {
        let Some(near) = way.near else {
            return Door::WebSocket(path.address());
        };
        match way.route {
            "lines" => Door::Unix(self.socket(near, way.far)),
            "narrow" => Door::Tcp(at(self.address, near_port(near, "narrow"))),
            _ => Door::Http(at(self.address, near_port(near, "mcp"))),
        }
    }

    fn socket(&self, near: &str, far: &str) -> PathBuf {
        self.sockets.path().join(format!("{near}-{far}"))
    }

    /// The routes of a member.
    pub(crate) fn routes(&self, member: &'static str, variant: Variant) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/soak/server.py");
        let command = format!("exec:python3 {} {}", script.display(), self.diary.display());
        let lines = format!("tcp://{}", at(self.address, 100));
        let mut routes = Vec::new();
        match FAR.contains(&member) {
            true => {
                for (route, to) in [("lines", &lines), ("narrow", &command), ("mcp", &command)] {
                    let listen = at(self.address, far_port(member, route));
                    routes.push((route.to_owned(), format!("ws://{listen}"), to.clone()));
                }
                let listen = at(self.address, far_port(member, "plain"));
                let plain = (
                    "plain".to_owned(),
                    format!("whole+ws://{listen}"),
                    lines.clone(),
                );
                routes.push(plain);
            }
            false => {
                for (way, path) in self
                    .paths
                    .iter()
                    .filter(|(way, _)| way.near == Some(member))
                {
                    let port = |route| at(self.address, near_port(member, route));
                    let (name, listen) = match way.route {
                        "lines" => {
                            let socket = self.socket(member, way.far);
                            (
                                format!("lines-{}", way.far),
                                format!("unix:{}", socket.display()),
                            )
                        }
                        "narrow" => ("narrow".to_owned(), format!("tcp://{}", port("narrow"))),
                        _ => ("mcp".to_owned(), format!("http://{}/mcp", port("mcp"))),
                    };
                    routes.push((name, listen, format!("ws://{}/", path.address())));
                }
            }
        }
        if variant.more {
            let number = self.members.iter().position(|it| it.name == member);
            let listen = at(self.address, 300 + number.unwrap_or_default() as u16);
            routes.push(("more".to_owned(), format!("tcp://{listen}"), lines));
        }
        let routes = routes.into_iter().map(|(name, listen, to)| {
            // A target may be away when its gateway starts.
            let mut route = format!(
                "[[route]]\nname = '{name}'\nlisten = '{listen}'\nto = '{to}'\nno-check = true\n"
            );
            if name == "narrow" {
                let rate = 1000 + variant.changes;
                route.push_str(&format!("max-frame = '64KB'\nrate-per-address = {rate}\n"));
            }
            route
        });
        routes.collect()
    }
}

/// Each way of a client to its target, and the port behind the path on it.
fn ways() -> Vec<(Way, u16)> {
    let mut ways = Vec::new();
    for (number, near) in NEAR.into_iter().enumerate() {
        let near = Some(near);
        for far in FAR {
            ways.push((
                Way {
                    near,
                    far,
                    route: "lines",
                },
                far_port(far, "lines"),
            ));
        }
        for (route, far) in [("narrow", FAR[1 - number]), ("mcp", FAR[number])] {
            ways.push((Way { near, far, route }, far_port(far, route)));
        }
    }
    for far in FAR {
        ways.push((
            Way {
                near: None,
                far,
                route: "plain",
            },
            far_port(far, "plain"),
        ));
    }
    ways
}

fn far_port(far: &str, route: &str) -> u16 {
    let routes = ["lines", "narrow", "mcp", "plain"];
    let route = routes.iter().position(|it| *it == route).unwrap();
    let far = FAR.iter().position(|it| *it == far).unwrap();
    (10 + 10 * far + route) as u16
}

fn near_port(near: &str, route: &str) -> u16 {
    let near = NEAR.iter().position(|it| *it == near).unwrap();
    (50 + 10 * near + usize::from(route == "mcp")) as u16
}

/// A port of our own address.
fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, 20_000 + port)
}
