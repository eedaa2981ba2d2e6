//! A store under an account: its requests and bytes a second are bounded, by waiting.
//!
//! A request waits before it is sent until what its account sent before is paid for, and is then owed itself: what a
//! reader gets is known only when it comes. So what may be used at once is what a second allows, and one request more.
//! Requests of one account wait in the order in which they came; those of another have nothing to do with it. Nothing
//! fails because of a budget, and the time limits of a request begin when it is sent.
//!
//! A listing is one request, and one more for each thousand names; a deletion is one for each object.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};

use crate::account::Account;

/// How many names of a listing count as a request.
const NAMES_A_REQUEST: usize = 1_000;

/// A store whose use an account pays for.
#[derive(Debug)]
pub(super) struct Budgeted {
    inner: Arc<dyn ObjectStore>,
    account: Account,
}

impl Budgeted {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, account: Account) -> Self {
        Self { inner, account }
    }

    fn counted(&self, list: BoxStream<'static, Result<ObjectMeta>>) -> BoxStream<'static, Result<ObjectMeta>> {
        let account = self.account.clone();
        let paid = list.enumerate().then(move |(number, object)| {
            let account = account.clone();
            async move {
                if number % NAMES_A_REQUEST == 0 {
                    account.store_request(0).await;
                }
                object
            }
        });
        paid.boxed()
    }
}

impl fmt::Display for Budgeted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Budgeted {
    async fn put_opts(&self, path: &Path, payload: PutPayload, mut options: PutOptions) -> Result<PutResult> {
        self.account.store_request(payload.content_length() as u64).await;
        // A store on this machine works for it.
        options.extensions.insert(self.account.clone());
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.account.store_request(0).await;
        let upload = self.inner.put_multipart_opts(path, options).await?;
        Ok(Box::new(BudgetedUpload { upload, account: self.account.clone() }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.account.store_request(0).await;
        let is_head = options.head;
        let result = self.inner.get_opts(path, options).await?;
        if !is_head {
            self.account.store_bytes(result.range.end.saturating_sub(result.range.start));
        }
        Ok(result)
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.account.store_request(0).await;
        let parts = self.inner.get_ranges(path, ranges).await?;
        self.account.store_bytes(parts.iter().map(|part| part.len() as u64).sum());
        Ok(parts)
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let account = self.account.clone();
        let paid = paths.and_then(move |path| {
            let account = account.clone();
            async move {
                account.store_request(0).await;
                Ok(path)
            }
        });
        self.inner.delete_stream(paid.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.counted(self.inner.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.counted(self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.account.store_request(0).await;
        let listed = self.inner.list_with_delimiter(prefix).await?;
        for _ in 0..(listed.objects.len() + listed.common_prefixes.len()) / NAMES_A_REQUEST {
            self.account.store_request(0).await;
        }
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.account.store_request(0).await;
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.account.store_request(0).await;
        self.inner.rename_opts(from, to, options).await
    }
}

/// An upload in parts, each of which is a request.
#[derive(Debug)]
struct BudgetedUpload {
    upload: Box<dyn MultipartUpload>,
    account: Account,
}

#[async_trait]
impl MultipartUpload for BudgetedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let account = self.account.clone();
        let bytes = data.content_length() as u64;
        // Parts are numbered in the order of these calls, so it is made now and waits then.
        let part = self.upload.put_part(data);
        Box::pin(async move {
            account.store_request(bytes).await;
            part.await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.account.store_request(0).await;
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        // What gives space back does not wait.
        self.upload.abort().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;
    use crate::account::{AccountLimits, Accounts};
    use crate::clock::Clock;
    use crate::storage::Opened;

    fn limits(requests: Option<u32>, bytes: Option<u64>) -> AccountLimits {
        AccountLimits { store_requests_per_second: requests, store_bytes_per_second: bytes, ..AccountLimits::default() }
    }

    fn store(account: &Account) -> Arc<dyn ObjectStore> {
        Opened::of(Arc::new(InMemory::new())).under(account).objects
    }

    fn path(n: usize) -> Path {
        Path::from(format!("object-{n}"))
    }

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_the_burst_wait_and_none_fails() {
        let clock = Clock::paused(0);
        let accounts = Accounts::new(1, None, clock.clone());
        let account = accounts.account("anna", limits(Some(10), None));
        let store = store(&account);
        for n in 0..10 {
            store.put(&path(n), "x".into()).await.unwrap();
        }
        assert_eq!(clock.elapsed(), Duration::ZERO, "a second's worth at once");
        for n in 0..20 {
            store.get(&path(n % 10)).await.unwrap();
        }
        let took = clock.elapsed().as_secs_f64();
        assert!((1.8..=2.1).contains(&took), "{took}");
        let usage = account.usage();
        assert_eq!((usage.store_requests, usage.store_bytes), (30, 30));
        assert!(usage.store_waited >= Duration::from_millis(1_800), "{usage:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_paid_for_by_whoever_comes_next() {
        let clock = Clock::paused(0);
        let accounts = Accounts::new(1, None, clock.clone());
        let account = accounts.account("anna", limits(None, Some(1_000)));
        let store = store(&account);
        store.put(&path(0), vec![0; 3_000].into()).await.unwrap();
        assert_eq!(clock.elapsed(), Duration::ZERO);
        store.get(&path(0)).await.unwrap().bytes().await.unwrap();
        let first = clock.elapsed().as_secs_f64();
        assert!((1.9..2.1).contains(&first), "2,000 bytes were owed: {first}");
        assert_eq!(store.get_ranges(&path(0), &[0..1_000, 1_000..2_000]).await.unwrap().len(), 2);
        let second = clock.elapsed().as_secs_f64();
        assert!((4.9..5.1).contains(&second), "and then the 3,000 that were read: {second}");
        store.head(&path(0)).await.unwrap();
        let third = clock.elapsed().as_secs_f64();
        assert!((6.9..7.1).contains(&third), "and the ranges: {third}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_account_that_waits_keeps_no_other_and_requests_come_in_their_order() {
        let clock = Clock::paused(0);
        let accounts = Accounts::new(1, None, clock.clone());
        let (anna, bert) =
            (accounts.account("anna", limits(Some(1), None)), accounts.account("bert", limits(None, None)));
        let (slow, fast) = (store(&anna), store(&bert));
        let mut writes = futures::stream::FuturesUnordered::new();
        for n in 0..5 {
            let slow = Arc::clone(&slow);
            writes.push(async move { slow.put(&path(n), "x".into()).await.map(|_| n) });
        }
        for n in 0..100 {
            fast.put(&path(n), "x".into()).await.unwrap();
        }
        assert_eq!(clock.elapsed(), Duration::ZERO);
        let order: Vec<usize> = writes.by_ref().map(Result::unwrap).collect().await;
        assert_eq!(order, [0, 1, 2, 3, 4]);
        assert!(clock.elapsed() >= Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn listings_deletions_and_parts_are_counted() {
        let accounts = Accounts::new(1, None, Clock::paused(0));
        let account = accounts.account("anna", AccountLimits::default());
        let inner: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        for n in 0..2_500 {
            inner.put(&path(n), "x".into()).await.unwrap();
        }
        let store = Opened::of(inner).under(&account).objects;
        let since = |before: u64| account.usage().store_requests - before;
        assert_eq!(store.list(None).count().await, 2_500);
        assert_eq!(since(0), 3);
        assert_eq!(store.list_with_delimiter(None).await.unwrap().objects.len(), 2_500);
        assert_eq!(since(3), 3);
        let paths = futures::stream::iter((0..10).map(|n| Ok(path(n)))).boxed();
        assert_eq!(store.delete_stream(paths).count().await, 10);
        assert_eq!(since(6), 10);
        let mut upload = store.put_multipart(&path(0)).await.unwrap();
        for part in 0..2u8 {
            upload.put_part(vec![part; 100].into()).await.unwrap();
        }
        upload.complete().await.unwrap();
        assert_eq!(since(16), 4);
        assert_eq!(account.usage().store_bytes, 200);
        assert_eq!(store.get(&path(0)).await.unwrap().bytes().await.unwrap().len(), 200);
    }
}
