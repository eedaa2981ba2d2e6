//! Work that takes a core for a while, kept off the threads on which the stream runs.
//!
//! Hashing, compressing and packing go through [`offload`]. On a runtime with one thread, as in a simulation, and
//! without one, the work is done at once and in order: what happens is then a matter of the seed alone.

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::account::Account;
use crate::clock::Clock;

/// Does `work` on a thread for such, and gives what it gives.
///
/// # Errors
///
/// If it panicked, or the runtime is going down: as a clause.
pub(crate) async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() != RuntimeFlavor::CurrentThread => {
            // What is done at once is charged as part of the task; this is not.
            let account = Account::current();
            let work = move || {
                let Some(account) = account else { return work() };
                let clock = Clock::system();
                let began = clock.elapsed();
                let done = work();
                account.charge(clock.elapsed().saturating_sub(began));
                done
            };
            runtime.spawn_blocking(work).await.map_err(|error| format!("work aside of the stream was lost: {error}"))
        }
        _ => Ok(work()),
    }
}
