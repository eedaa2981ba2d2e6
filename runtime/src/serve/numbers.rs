//! The numbers of a server and of all its jobs, as one text.

use super::Server;
use super::job::Phase;
use crate::metrics::{self, GuestSeries, ServerNumbers};

impl Server {
    /// In the OpenMetrics format: everything, or what is a tenant's.
    pub fn numbers(&self, only: Option<&str>) -> String {
        let tenants = self.tenants();
        let mine = || tenants.iter().filter(|tenant| only.is_none_or(|only| tenant.name == only));
        let mut texts = Vec::new();
        let (count, instances) = (mine().count() as u64, self.host().instances().into());
        let mut numbers = ServerNumbers { tenants: count, instances, ..ServerNumbers::default() };
        for tenant in mine() {
            let usage = tenant.account.usage();
            let name = tenant.name.clone();
            numbers.usage.push((name, usage.cpu.as_secs_f64(), usage.memory_bytes, usage.store_bytes));
            let jobs = tenant.jobs();
            for phase in Phase::ALL {
                let count = jobs.iter().filter(|job| job.phase() == phase).count() as u64;
                numbers.jobs.push((tenant.name.clone(), phase.word(), count));
            }
        }
        texts.push(metrics::render_server(&numbers));
        let guests = self.host().metrics();
        for tenant in mine() {
            for job in tenant.jobs() {
                let Some(run) = job.state().run.clone() else { continue };
                let Some(store) = &run.store else { continue };
                let ours = guests.iter().filter(|metric| metric.account == tenant.name && metric.job == job.name);
                let ours: Vec<GuestSeries> = ours.cloned().map(GuestSeries::from).collect();
                let name = (Some(tenant.name.as_str()), job.name.as_str());
                texts.push(metrics::render(name, &run.metrics, store.metrics(), self.clock(), &ours));
            }
        }
        metrics::join(texts)
    }
}
