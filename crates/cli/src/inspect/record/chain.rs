//! Puts the sessions of several gateways together: those whose gateways told each other their names.

use std::collections::{BTreeSet, HashMap};

use breakbulk::gateway::record::SideName;

use super::book::{Book, Session};

/// The most gateways of one conversation.
const GATEWAYS: usize = 16;

/// A conversation: its sessions, from the gateway that a program connected to up to the last one.
pub(super) type Chain<'a> = Vec<&'a Session>;

/// All conversations, by the time at which they began.
pub(super) fn chains(book: &Book) -> Vec<Chain<'_>> {
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, session) in book.sessions.iter().enumerate() {
        by_name
            .entry(&session.point.session)
            .or_default()
            .push(index);
    }
    // The session at the next gateway, towards the target, if both gateways say that they belong together.
    let next_of = |index: usize| -> Option<usize> {
        let session = &book.sessions[index];
        let name = session.other(SideName::To)?;
        let others = by_name.get(name)?.iter().copied();
        let mut others = others.filter(|other| *other != index);
        others.find(|other| {
            book.sessions[*other].other(SideName::Listen) == Some(&session.point.session)
        })
    };
    let next: Vec<Option<usize>> = (0..book.sessions.len()).map(next_of).collect();
    let followed: BTreeSet<usize> = next.iter().flatten().copied().collect();
    let mut chains = Vec::new();
    let mut used = BTreeSet::new();
    // First the sessions that no other session leads to; what is left then are circles, which only a forged
    // record has.
    let heads = (0..next.len()).filter(|index| !followed.contains(index));
    for head in heads.chain(0..next.len()) {
        let mut chain = Vec::new();
        let mut at = Some(head);
        while let Some(index) = at.filter(|_| chain.len() < GATEWAYS) {
            if !used.insert(index) {
                break;
            }
            chain.push(&book.sessions[index]);
            at = next[index];
        }
        if !chain.is_empty() {
            chains.push(chain);
        }
    }
    chains.sort_by_key(|chain| chain.iter().map(|session| session.first).min());
    chains
}
