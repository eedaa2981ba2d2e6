//! Chooses the receiver: hands a node's output to the subtasks of the node that reads it.
//!
//! One exchange for each edge and sending subtask. It sets the key where the edge has a pointer, hashes keys once for
//! everybody downstream, and gathers a batch for each receiver, so that splitting does not make batches small. What it
//! holds back goes out when a batch is full, before any element that is not records, and when the task asks for it.

use std::time::Duration;

use super::channel::{Closed, Sender};
use crate::model::{Batch, BatchLimit, Element, Timestamp, key_group, subtask_of_group};
use crate::plan::{ExchangeKind, OnError};
use crate::pointer::Pointer;

/// How an edge prepares records for their receiver, wherever that is.
#[derive(Clone, Debug)]
pub struct Keying {
    /// Where the key is, in the value. None keeps the record's own.
    pub key: Option<Pointer>,
    /// Whether the receiver wants hashes.
    pub hash: bool,
    /// What is done about a value that is not JSON.
    pub on_error: OnError,
    /// The edge, for messages: `a -> b`.
    pub edge: String,
}

/// A record whose key cannot be found, on an edge that does not skip such records.
#[derive(Debug, thiserror::Error)]
#[error("a record on the edge {edge} is not JSON, so that the key {pointer} cannot be found in it: {excerpt:?}")]
pub struct KeyFault {
    edge: String,
    pointer: String,
    excerpt: String,
    #[source]
    source: serde_json::Error,
}

impl Keying {
    /// Whether batches pass as they are.
    pub fn is_identity(&self) -> bool {
        self.key.is_none() && !self.hash
    }

    /// Sets keys and hashes. Returns how many records were skipped.
    ///
    /// # Errors
    ///
    /// If a value is not JSON and the edge does not skip such records.
    pub fn apply(&self, batch: &mut Batch) -> Result<u64, KeyFault> {
        let mut skipped = 0;
        if let Some(pointer) = &self.key {
            let old = std::mem::take(&mut batch.keys);
            let mut bad = Vec::new();
            for row in 0..batch.len() {
                let value = batch.values.get(row);
                match value.map(|value| pointer.find(value)) {
                    None => batch.keys.push(row, old.get(row)),
                    Some(Ok(found)) => batch.keys.push(row, found.as_bytes()),
                    Some(Err(_)) if self.on_error == OnError::Skip => {
                        bad.push(row);
                        batch.keys.push(row, None);
                    }
                    Some(Err(source)) => {
                        let value = value.unwrap_or_default();
                        let excerpt = String::from_utf8_lossy(&value[..value.len().min(200)]).into_owned();
                        let pointer = pointer.as_str().to_owned();
                        return Err(KeyFault { edge: self.edge.clone(), pointer, excerpt, source });
                    }
                }
            }
            if !bad.is_empty() {
                skipped = bad.len() as u64;
                batch.hashes.clear();
                let mut kept = Batch::default();
                for row in (0..batch.len()).filter(|row| bad.binary_search(row).is_err()) {
                    kept.push_row(batch, row);
                }
                *batch = kept;
            }
        }
        if self.hash {
            batch.hash_keys();
        } else {
            batch.hashes.clear();
        }
        Ok(skipped)
    }
}

/// The sending side of an edge that is not chained.
#[derive(Debug)]
pub struct Exchange {
    kind: ExchangeKind,
    /// To each subtask of the receiver; for a forward edge to one.
    senders: Vec<Sender>,
    /// Gathers records for each receiver of a keyed edge.
    buffers: Vec<Batch>,
    limit: BatchLimit,
    key_groups: u32,
    turn: usize,
    buffered_since: Option<Duration>,
    /// A watermark that waits behind what is held back: later is always right for a lower bound.
    watermark: Option<Timestamp>,
}

impl Exchange {
    /// An exchange to these receivers. `subtask` is the sender's number: senders of a rebalance edge start at different
    /// receivers.
    pub fn new(kind: ExchangeKind, senders: Vec<Sender>, limit: BatchLimit, key_groups: u32, subtask: u32) -> Self {
        let buffers = vec![Batch::default(); if kind == ExchangeKind::Keyed { senders.len() } else { 0 }];
        let turn = subtask as usize % senders.len().max(1);
        Self { kind, senders, buffers, limit, key_groups, turn, buffered_since: None, watermark: None }
    }

    /// Hands records on; `now` is when.
    ///
    /// # Errors
    ///
    /// If a receiver is gone.
    pub async fn send_batch(&mut self, batch: Batch, now: Duration) -> Result<(), Closed> {
        match self.kind {
            ExchangeKind::Forward => self.senders[0].send(Element::Batch(batch)).await,
            ExchangeKind::Rebalance => {
                self.turn = (self.turn + 1) % self.senders.len();
                self.senders[self.turn].send(Element::Batch(batch)).await
            }
            ExchangeKind::Broadcast => {
                let (last, others) = self.senders.split_last().ok_or(Closed)?;
                for sender in others {
                    sender.send(Element::Batch(batch.clone())).await?;
                }
                last.send(Element::Batch(batch)).await
            }
            ExchangeKind::Keyed if self.senders.len() == 1 => self.senders[0].send(Element::Batch(batch)).await,
            ExchangeKind::Keyed => self.scatter(&batch, now).await,
        }
    }

    async fn scatter(&mut self, batch: &Batch, now: Duration) -> Result<(), Closed> {
        let parallelism = self.senders.len() as u32;
        for (row, &hash) in batch.hashes.iter().enumerate() {
            let group = key_group(hash, self.key_groups);
            let target = subtask_of_group(group, parallelism, self.key_groups) as usize;
            let buffer = &mut self.buffers[target];
            buffer.push_row(batch, row);
            // What a guest chooses is counted; the columns' own fixed sizes go by the number of records.
            let bytes = buffer.keys.bytes.len() + buffer.values.bytes.len() + buffer.headers.bytes.len();
            if buffer.len() >= self.limit.records || bytes >= self.limit.bytes {
                let full = std::mem::take(buffer);
                self.senders[target].send(Element::Batch(full)).await?;
            }
        }
        if self.buffered_since.is_none() && self.buffers.iter().any(|buffer| !buffer.is_empty()) {
            self.buffered_since = Some(now);
        }
        Ok(())
    }

    /// Sends what is held back.
    ///
    /// # Errors
    ///
    /// If a receiver is gone.
    pub async fn flush(&mut self) -> Result<(), Closed> {
        if self.buffered_since.take().is_some() {
            for (buffer, sender) in self.buffers.iter_mut().zip(&self.senders) {
                if !buffer.is_empty() {
                    sender.send(Element::Batch(std::mem::take(buffer))).await?;
                }
            }
        }
        if let Some(watermark) = self.watermark.take() {
            self.send_all(&Element::Watermark(watermark)).await?;
        }
        Ok(())
    }

    /// To which receiver the last batch of a rebalance edge went: what comes next depends on it. None for other edges.
    pub fn turn(&self) -> Option<u32> {
        (self.kind == ExchangeKind::Rebalance).then_some(self.turn as u32)
    }

    /// Goes on as if the last batch had gone to this receiver.
    pub fn set_turn(&mut self, turn: u32) {
        self.turn = turn as usize % self.senders.len().max(1);
    }

    /// Since when something is held back.
    pub fn buffered_since(&self) -> Option<Duration> {
        self.buffered_since
    }

    /// Sends an element that is not records to every receiver, after what is held back. A watermark may wait for that.
    ///
    /// # Errors
    ///
    /// If a receiver is gone.
    pub async fn send_control(&mut self, element: &Element) -> Result<(), Closed> {
        if let (Element::Watermark(time), Some(_)) = (element, self.buffered_since) {
            self.watermark = Some(*time);
            return Ok(());
        }
        self.flush().await?;
        self.send_all(element).await
    }

    async fn send_all(&self, element: &Element) -> Result<(), Closed> {
        for sender in &self.senders {
            sender.send(element.clone()).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::flow::channel::{Receiver, channel};
    use crate::model::key_hash;

    async fn drain(mut receiver: Receiver) -> Vec<Element> {
        let mut elements = Vec::new();
        while let Some(element) = poll_fn(|cx| receiver.poll_recv(cx)).await {
            elements.push(element);
        }
        elements
    }

    fn keying(pointer: Option<&str>, on_error: OnError) -> Keying {
        let key = pointer.map(|p| Pointer::parse(p).unwrap());
        Keying { key, hash: true, on_error, edge: "a -> b".into() }
    }

    #[tokio::test]
    async fn every_record_goes_to_the_owner_of_its_key_group_in_order() {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| channel(1000, 1 << 20)).unzip();
        let limit = BatchLimit { records: 7, bytes: 1 << 20 };
        let mut exchange = Exchange::new(ExchangeKind::Keyed, senders, limit, 128, 0);
        let mut batch = Batch::default();
        for i in 0..200u32 {
            batch.push(i64::from(i), Some(format!("k{}", i % 20).as_bytes()), Some(&i.to_le_bytes()));
        }
        keying(None, OnError::Fail).apply(&mut batch).unwrap();
        exchange.send_batch(batch, Duration::ZERO).await.unwrap();
        exchange.send_control(&Element::End).await.unwrap();
        drop(exchange);
        let mut seen = 0;
        for (subtask, receiver) in receivers.into_iter().enumerate() {
            let elements = drain(receiver).await;
            assert_eq!(elements.last(), Some(&Element::End));
            let mut last = std::collections::BTreeMap::new();
            for element in &elements {
                let Element::Batch(batch) = element else { continue };
                assert!(batch.len() <= 7);
                for row in 0..batch.len() {
                    let key = batch.keys.get(row).unwrap();
                    assert_eq!(batch.hashes[row], key_hash(key));
                    assert_eq!(subtask_of_group(key_group(key_hash(key), 128), 3, 128) as usize, subtask);
                    assert!(last.insert(key.to_vec(), batch.timestamps[row]).is_none_or(|t| t < batch.timestamps[row]));
                    seen += 1;
                }
            }
        }
        assert_eq!(seen, 200);
    }

    #[test]
    fn keys_are_found_in_values_and_what_is_not_json_fails_or_is_skipped() {
        let mut batch = Batch::default();
        batch.push(1, None, Some(br#"{"c":"UA"}"#));
        batch.push(2, Some(b"old"), Some(br#"{"c":null}"#));
        batch.push(3, Some(b"old"), None);
        batch.push(4, None, Some(b"broken"));
        let error = keying(Some("/c"), OnError::Fail).apply(&mut batch.clone()).unwrap_err();
        assert!(error.to_string().contains("a -> b") && error.to_string().contains("broken"));
        assert_eq!(keying(Some("/c"), OnError::Skip).apply(&mut batch).unwrap(), 1);
        assert_eq!(batch.len(), 3);
        assert_eq!(batch.keys.get(0), Some(&b"UA"[..]));
        assert_eq!(batch.keys.get(1), None);
        assert_eq!(batch.keys.get(2), Some(&b"old"[..]), "a tombstone keeps its key");
        assert_eq!(batch.hashes, [key_hash(b"UA"), key_hash(b""), key_hash(b"old")]);
        assert_eq!(batch.validate(), Ok(()));
    }
}
