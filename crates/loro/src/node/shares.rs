//! Shares of the memory for messages: each client address has its own, so that no address can take all.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use breakbulk_link::{Budget, lock};

/// The shares that are in use.
#[derive(Debug)]
pub(super) struct Shares {
    common: Budget,
    reserved: usize,
    /// The share of each network, with the number of its connections.
    networks: Mutex<BTreeMap<Network, (Budget, usize)>>,
}

/// Clients that count as one: an IPv4 address, or an IPv6 network of 64 bits.
type Network = [u8; 8];

/// One connection's hold on the share of its address.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) budget: Budget,
    network: Option<Network>,
    shares: Arc<Shares>,
}

impl Shares {
    /// Shares of this budget, each with so many bytes that no other can take.
    pub(super) fn new(common: Budget, reserved: usize) -> Arc<Self> {
        Arc::new(Self {
            common,
            reserved,
            networks: Mutex::default(),
        })
    }

    /// The share of an address. Connections from this machine, and those without an address, have one
    /// each.
    pub(super) fn of(self: &Arc<Self>, address: Option<IpAddr>) -> Share {
        let network = address.and_then(network);
        let new = || self.common.share(self.reserved);
        let budget = match network {
            None => new(),
            Some(network) => {
                let mut networks = lock(&self.networks);
                let (budget, connections) = networks.entry(network).or_insert_with(|| (new(), 0));
                *connections += 1;
                budget.clone()
            }
        };
        Share {
            budget,
            network,
            shares: self.clone(),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some(network) = self.network else {
            return;
        };
        let mut networks = lock(&self.shares.networks);
        if let Some((_, connections)) = networks.get_mut(&network) {
            *connections -= 1;
            if *connections == 0 {
                networks.remove(&network);
            }
        }
    }
}

fn network(address: IpAddr) -> Option<Network> {
    let mut network = [0; 8];
    match address.to_canonical() {
        address if address.is_loopback() => return None,
        // No public IPv6 network begins with four zero bytes.
        IpAddr::V4(address) => network[4..].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => network.copy_from_slice(&address.octets()[..8]),
    }
    Some(network)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;

    // LORO-33
    #[test]
    fn an_address_has_one_share_however_many_connections_it_has() {
        let shares = Shares::new(Budget::new(90), 10);
        let share = |address: &str| shares.of(Some(address.parse().unwrap()));
        let greedy = [share("192.0.2.1"), share("::ffff:192.0.2.1")];
        // Two thirds of the budget plus the reserve, for both connections together.
        let first = greedy[0].budget.charge(70).unwrap();
        assert!(greedy[1].budget.charge(1).is_none());
        for other in ["192.0.2.2", "2001:db8::1", "2001:db8:0:1::1"] {
            assert!(share(other).budget.charge(10).is_some(), "{other}");
        }
        let one = share("2001:db8::1");
        let held = one.budget.charge(10).unwrap();
        let same = share("2001:db8::ffff:1");
        assert_eq!(same.budget.used(), 10);
        // Each connection from this machine has a share of its own.
        let local = [share("127.0.0.1"), share("127.0.0.1"), shares.of(None)];
        let charges: Vec<_> = local.iter().map(|it| it.budget.charge(10)).collect();
        assert!(charges.iter().all(Option::is_some));
        drop((first, held, charges, greedy, one, same, local));
        assert_eq!(shares.common.used(), 0);
        assert!(lock(&shares.networks).is_empty());
    }
}
