//! What is remembered of clients between their connections; when the table is full, the client that has
//! been away longest is forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;

use breakbulk_message::ahp::Chunking;

use super::types::ClientId;
use crate::config::Slow;

/// What is known of one client beyond its connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Session {
    /// The limits that it last advertised.
    pub(super) chunking: Option<Chunking>,
    /// A replay would contain a message that is too large for it, so it gets a snapshot.
    pub(super) wants_snapshot: bool,
    /// Set if a transfer took longer than the client waits.
    pub(super) slow: Option<Slow>,
}

/// The client has made a newer connection meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Late;

#[derive(Debug, Default)]
pub(super) struct Sessions {
    limit: usize,
    all: BTreeMap<Arc<str>, Entry>,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    session: Session,
    /// Its connection, while it has one.
    connection: Option<ClientId>,
    /// When that connection began its handshake, as a number that only grows.
    turn: u64,
    /// When it was last connected, on the table's `clock`.
    used: u64,
}

impl Sessions {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    pub(super) fn get(&self, client_id: &str) -> Option<Session> {
        self.all.get(client_id).map(|entry| entry.session)
    }

    /// Makes this the connection of a client and returns the one before. `Err`: a connection that began
    /// its handshake later is done already, and stays.
    pub(super) fn connect(
        &mut self,
        client_id: &Arc<str>,
        connection: ClientId,
        turn: u64,
        session: Session,
    ) -> Result<Option<ClientId>, Late> {
        if self.all.get(client_id).is_some_and(|it| it.turn > turn) {
            return Err(Late);
        }
        self.clock += 1;
        let entry = Entry {
            session,
            connection: Some(connection),
            turn,
            used: self.clock,
        };
        let old = self.all.insert(client_id.clone(), entry);
        self.trim();
        Ok(old.and_then(|entry| entry.connection))
    }

    /// A connection has ended; nothing changes if the client has another one by now.
    pub(super) fn disconnect(&mut self, client_id: &str, connection: ClientId) {
        self.clock += 1;
        if let Some(entry) = self.all.get_mut(client_id)
            && entry.connection == Some(connection)
        {
            entry.connection = None;
            entry.used = self.clock;
        }
        self.trim();
    }

    /// Changes what is remembered of a client.
    pub(super) fn update(&mut self, client_id: &str, change: impl FnOnce(&mut Session)) {
        if let Some(entry) = self.all.get_mut(client_id) {
            change(&mut entry.session);
        }
    }

    /// Forgets clients that have been away longest; never one that is connected.
    fn trim(&mut self) {
        while self.all.len() > self.limit {
            let away = self.all.iter().filter(|(_, e)| e.connection.is_none());
            let Some((oldest, _)) = away.min_by_key(|(_, entry)| entry.used) else {
                return;
            };
            let oldest = oldest.clone();
            self.all.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_away_is_forgotten_and_connected_ones_never() {
        let mut sessions = Sessions::new(2);
        let names = ["a", "b", "c", "d"].map(Arc::<str>::from);
        let known = |sessions: &Sessions| -> Vec<String> {
            sessions.all.keys().map(|name| name.to_string()).collect()
        };
        for (connection, name) in (0u64..).zip(&names[..3]) {
            let old = sessions.connect(name, ClientId(connection), connection, Session::default());
            assert_eq!(old, Ok(None));
        }
        assert_eq!(known(&sessions), ["a", "b", "c"]);
        sessions.disconnect("b", ClientId(1));
        assert_eq!(known(&sessions), ["a", "c"]);
        sessions.disconnect("c", ClientId(2));
        sessions.disconnect("a", ClientId(0));
        let old = sessions.connect(&names[3], ClientId(3), 3, Session::default());
        assert_eq!(old, Ok(None));
        assert_eq!(known(&sessions), ["a", "d"]);
    }

    #[test]
    fn the_end_of_an_old_connection_does_not_touch_the_new_one() {
        let mut sessions = Sessions::new(1);
        let name = Arc::<str>::from("a");
        let connect = |sessions: &mut Sessions, number| {
            sessions.connect(&name, ClientId(number), number, Session::default())
        };
        assert_eq!(connect(&mut sessions, 1), Ok(None));
        assert_eq!(connect(&mut sessions, 2), Ok(Some(ClientId(1))));
        sessions.disconnect("a", ClientId(1));
        assert_eq!(connect(&mut sessions, 3), Ok(Some(ClientId(2))));
    }

    // AHP-11
    #[test]
    fn the_latest_handshake_counts_even_once_its_connection_is_gone() {
        let mut sessions = Sessions::new(1);
        let name = Arc::<str>::from("a");
        let marked = Session {
            wants_snapshot: true,
            ..Session::default()
        };
        assert_eq!(sessions.connect(&name, ClientId(7), 2, marked), Ok(None));
        let late = sessions.connect(&name, ClientId(8), 1, Session::default());
        assert_eq!(late, Err(Late));
        sessions.disconnect("a", ClientId(7));
        let late = sessions.connect(&name, ClientId(8), 1, Session::default());
        assert_eq!(late, Err(Late));
        assert!(sessions.get("a").is_some_and(|known| known.wants_snapshot));
    }
}
