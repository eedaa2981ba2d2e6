//! How many connections each address has.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    most: usize,
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A connection; it ends with this.
#[derive(Debug)]
pub(super) struct OfPeer {
    peers: Peers,
    who: IpAddr,
}

impl Peers {
    pub(super) fn new(most: usize) -> Self {
        Self { most, counts: Arc::default() }
    }

    /// One more connection of an address; none if it has as many as it may.
    pub(super) fn enter(&self, address: IpAddr) -> Option<OfPeer> {
        let who = holder(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(who).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(OfPeer { peers: self.clone(), who })
    }
}

impl Drop for OfPeer {
    fn drop(&mut self) {
        let mut counts = self.peers.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.who);
            }
        }
    }
}

/// Who has an address: of IPv6 one has at least 64 bits of them.
fn holder(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_no_more_than_its_share_and_gets_it_back() {
        let peers = Peers::new(2);
        let at = |text: &str| peers.enter(text.parse().expect("it is an address"));
        let (first, _second) = (at("10.0.0.1"), at("::ffff:10.0.0.1"));
        assert!(first.is_some() && at("10.0.0.1").is_none(), "written in another way it is the same");
        assert!(at("10.0.0.2").is_some());
        drop(first);
        assert!(at("10.0.0.1").is_some());
        let (one, two) = (at("2001:db8::1"), at("2001:db8::2"));
        assert!(one.is_some() && two.is_some() && at("2001:db8::3").is_none());
        assert!(at("2001:db8:0:1::1").is_some());
        drop((one, two, _second));
        assert!(peers.counts.lock().expect("nobody panics").is_empty());
    }
}
