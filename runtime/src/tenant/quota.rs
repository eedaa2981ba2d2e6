//! How much a tenant may have of everything that tenants share.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The least and the most that a quota may be. Sizes in JSON are exact up to 2^53.
const BYTES_MAX: u64 = 1 << 50;
const COUNT_MAX: u64 = 1_000_000;

/// What a tenant may have at most, of each thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Quotas {
    /// Jobs, whether they run or not. Default 100.
    pub jobs: u32,
    /// Subtasks of all jobs that are to run. Default 1,000.
    pub subtasks: u32,
    /// Names and versions of plugins. Default 1,000.
    pub plugins: u32,
    /// One plugin, in bytes. Default 64 MiB, at most 256 MiB.
    pub plugin_bytes: u64,
    /// All plugins, in bytes. Default 4 GiB.
    pub plugins_bytes: u64,
    /// Linear memory of all instances, in bytes. Default 4 GiB.
    pub memory_bytes: u64,
    /// The share of the processors where tenants want more than there is, against the weights of the others. Default 100.
    pub cpu_weight: u32,
    /// Processors that are used at most, on the average over a second; a fraction is fine. Default none: all that nobody else wants.
    pub cpu_cores: Option<f64>,
    /// State of all jobs in their newest checkpoints, in bytes. Default 16 GiB.
    pub state_bytes: u64,
    /// The shortest interval between two checkpoints of a job, in milliseconds. Default 100, at least 10.
    pub checkpoint_interval_ms: u64,
    /// What all operators emit, in bytes a second. Default none.
    pub output_bytes_per_second: Option<u64>,
    /// Log lines of all operators a second. Default 1,000.
    pub log_lines_per_second: u32,
    /// Bytes that are written to and read from the object store a second. Default none.
    pub store_bytes_per_second: Option<u64>,
    /// Requests to the object store a second. Default none.
    pub store_requests_per_second: Option<u32>,
    /// Savepoints of a job. Default 100.
    pub savepoints: u32,
    /// Tokens. Default 100.
    pub tokens: u32,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            jobs: 100,
            subtasks: 1_000,
            plugins: 1_000,
            plugin_bytes: 64 << 20,
            plugins_bytes: 4 << 30,
            memory_bytes: 4 << 30,
            cpu_weight: 100,
            cpu_cores: None,
            state_bytes: 16 << 30,
            checkpoint_interval_ms: 100,
            output_bytes_per_second: None,
            log_lines_per_second: 1_000,
            store_bytes_per_second: None,
            store_requests_per_second: None,
            savepoints: 100,
            tokens: 100,
        }
    }
}

/// What would be more than a tenant may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tenant {tenant:?} may have {limit} {quota}, and this would make it {value}")]
pub struct QuotaRefusal {
    /// Whose quota it is.
    pub tenant: String,
    /// Its name in [`Quotas`].
    pub quota: &'static str,
    /// The quota.
    pub limit: String,
    /// What it would come to.
    pub value: String,
}

impl QuotaRefusal {
    /// Fails if `value` is more than `limit`.
    ///
    /// # Errors
    ///
    /// Itself.
    pub fn check(tenant: &str, quota: &'static str, value: u64, limit: u64) -> Result<(), Self> {
        if value <= limit {
            return Ok(());
        }
        Err(Self { tenant: tenant.to_owned(), quota, limit: limit.to_string(), value: value.to_string() })
    }

    /// Who can do something about it, and how.
    pub fn remedy(&self) -> String {
        remedy(&self.tenant, self.quota)
    }
}

/// Who can raise a quota, and how.
pub(super) fn remedy(tenant: &str, quota: &str) -> String {
    format!(
        "use less, or ask whoever runs this server to raise it: `weir tenant limits {tenant} --set {quota}=VALUE` with an \
         admin token of the server"
    )
}

impl Quotas {
    /// Says which value is out of its range.
    ///
    /// # Errors
    ///
    /// The name, the value and the range of the first.
    pub fn check(&self) -> Result<(), String> {
        let range = |name: &str, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(format!("{name} is {value}, and has to be from {least} to {most}")),
        };
        for (name, value, least) in [
            ("jobs", self.jobs, 0),
            ("subtasks", self.subtasks, 0),
            ("plugins", self.plugins, 0),
            ("cpu_weight", self.cpu_weight, 1),
            ("log_lines_per_second", self.log_lines_per_second, 0),
            ("store_requests_per_second", self.store_requests_per_second.unwrap_or(1), 1),
            ("savepoints", self.savepoints, 0),
            ("tokens", self.tokens, 0),
        ] {
            range(name, value.into(), least, COUNT_MAX)?;
        }
        range("plugin_bytes", self.plugin_bytes, 0, crate::checkpoint::PLUGIN_BYTES_MAX)?;
        for (name, value, least) in [
            ("plugins_bytes", self.plugins_bytes, 0),
            ("memory_bytes", self.memory_bytes, 1 << 16),
            ("state_bytes", self.state_bytes, 0),
            ("output_bytes_per_second", self.output_bytes_per_second.unwrap_or(1 << 10), 1 << 10),
            ("store_bytes_per_second", self.store_bytes_per_second.unwrap_or(1 << 10), 1 << 10),
        ] {
            range(name, value, least, BYTES_MAX)?;
        }
        range("checkpoint_interval_ms", self.checkpoint_interval_ms, 10, 86_400_000)?;
        match self.cpu_cores {
            Some(cores) if !(0.01..=1024.0).contains(&cores) => {
                Err(format!("cpu_cores is {cores}, and has to be from 0.01 to 1024"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_quota_its_value_and_who_can_raise_it() {
        assert_eq!(QuotaRefusal::check("a", "jobs", 3, 3), Ok(()));
        let refusal = QuotaRefusal::check("a", "jobs", 4, 3).expect_err("it is more");
        assert_eq!(refusal.to_string(), "tenant \"a\" may have 3 jobs, and this would make it 4");
        assert!(refusal.remedy().contains("weir tenant limits a --set jobs=VALUE"));
    }

    #[test]
    fn values_that_make_no_sense_are_refused_by_name() {
        assert_eq!(Quotas::default().check(), Ok(()));
        for (wrong, named) in [
            (Quotas { cpu_weight: 0, ..Quotas::default() }, "cpu_weight is 0"),
            (Quotas { cpu_cores: Some(f64::NAN), ..Quotas::default() }, "cpu_cores is NaN"),
            (Quotas { checkpoint_interval_ms: 9, ..Quotas::default() }, "checkpoint_interval_ms is 9"),
            (Quotas { plugin_bytes: u64::MAX, ..Quotas::default() }, "plugin_bytes is"),
            (Quotas { store_requests_per_second: Some(0), ..Quotas::default() }, "store_requests_per_second is 0"),
        ] {
            let fault = wrong.check().expect_err(named);
            assert!(fault.contains(named), "{fault}");
        }
        assert!(serde_json::from_str::<Quotas>(r#"{"job":1}"#).is_err(), "a name that there is not");
    }
}
