//! Work that takes a core for a while, kept off the threads on which the stream runs.
//!
//! Hashing, compressing and packing go through [`offload`]. On a runtime with one thread, as in a simulation, and
//! without one, the work is done at once and in order: what happens is then a matter of the seed alone.
//!
//! What is done for an account has a slot of its own meanwhile, as if it were polled: else a tenant with much to pack
//! would take the cores from all others, on threads that no scheduler of ours sees. What is done at once has that of
//! the task.

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::account::Account;

/// Does `work` on a thread for such, and gives what it gives. It is done to its end, also if nobody waits for it.
///
/// # Errors
///
/// If it panicked, or the runtime is going down: as a clause.
pub(crate) async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    offload_for(Account::current(), work).await
}

/// The same, for an account.
pub(crate) async fn offload_for<T: Send + 'static>(
    account: Option<Account>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let runtime = match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() != RuntimeFlavor::CurrentThread => runtime,
        _ => return Ok(work()),
    };
    let done = match account {
        None => runtime.spawn_blocking(work).await,
        // In a task of its own: whoever is polled with a slot cannot wait for another one.
        Some(account) => {
            let work = async move {
                let turn = account.turn().await;
                let work = move || {
                    let done = work();
                    drop(turn);
                    done
                };
                tokio::task::spawn_blocking(work).await
            };
            runtime.spawn(work).await.and_then(|done| done)
        }
    };
    done.map_err(|error| format!("work aside of the stream was lost: {error}"))
}
