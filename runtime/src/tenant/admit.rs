//! Whether a tenant may run a pipeline: everything that it may not, each at its line.
//!
//! Only what the pipeline file says is looked at. That a path below the tenant's directory leads out of it through a link is
//! looked for when the file is opened.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::time::Duration;

use super::TenantRecord;
use super::quota::remedy;
use crate::plan::{CheckpointSpec, Diagnostic, PipelineSpec, SinkConnector, SourceConnector, Span, show_duration};
use crate::storage::StoreUrl;

/// What waits in one channel at most, of a tenant.
const CHANNEL_BYTES_MAX: usize = 64 << 20;
/// What may be in memory on its way to the store at most, of a job of a tenant.
const UPLOAD_BYTES_MAX: u64 = 256 << 20;

/// Everything that a tenant may not run of a pipeline.
pub fn admit(tenant: &str, record: &TenantRecord, spec: &PipelineSpec) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut refuse = |span: &Span, message: String, help: String| found.push(spec.text.error_at(span, message, help));
    let whole = 0..0;
    let (grants, quotas) = (&record.grants, &record.quotas);

    let standard = CheckpointSpec::default();
    let checkpoint = &spec.checkpoint;
    if checkpoint.store != standard.store || checkpoint.store_options != standard.store_options {
        let span = find(spec, "store").unwrap_or(whole.clone());
        let help = "leave `store` and `store_options` of [checkpoint] out".to_owned();
        refuse(&span, "on a server the state of every job is in the store of the server".into(), help);
    }
    let shortest = Duration::from_millis(quotas.checkpoint_interval_ms);
    if checkpoint.interval < shortest {
        let (is, least) = (show_duration(checkpoint.interval), show_duration(shortest));
        let message = format!("tenant {tenant:?} may take a checkpoint every {least}, and this interval is {is}");
        let span = find(spec, "interval").unwrap_or(whole.clone());
        refuse(&span, message, remedy(tenant, "checkpoint_interval_ms"));
    }
    if checkpoint.upload_memory > UPLOAD_BYTES_MAX {
        let message = format!(
            "upload_memory is {} bytes, and {UPLOAD_BYTES_MAX} are the most on a server",
            checkpoint.upload_memory
        );
        refuse(&find(spec, "upload_memory").unwrap_or(whole.clone()), message, "leave it out".into());
    }
    if spec.channel.bytes > CHANNEL_BYTES_MAX {
        let message =
            format!("a channel holds {} bytes, and {CHANNEL_BYTES_MAX} are the most on a server", spec.channel.bytes);
        refuse(&find(spec, "channel").unwrap_or(whole.clone()), message, "leave `bytes` of [channel] out".into());
    }

    let directory_help = || {
        format!(
            "ask whoever runs this server for a directory: `weir tenant grants {tenant} --directory DIR` with an admin token of the server"
        )
    };
    let mut path = |span: &Span, what: &str, path: &Path| match (&grants.directory, path_fault(path)) {
        (None, _) => {
            refuse(span, format!("tenant {tenant:?} may not use files of the server: {what}"), directory_help());
        }
        (Some(_), Some(fault)) => {
            let help = "write a path that is relative: it begins at the directory that the tenant was given".to_owned();
            refuse(span, format!("{what}: path {:?} {fault}", path.display().to_string()), help);
        }
        (Some(_), None) => {}
    };
    for source in &spec.sources {
        match &source.connector {
            SourceConnector::File(file) => path(&source.span, "the `file` source", Path::new(&file.path)),
            SourceConnector::Generator(_) => {}
        }
    }
    for sink in &spec.sinks {
        if let SinkConnector::File(file) = &sink.connector {
            path(&sink.span, "the `file` sink", &file.path);
        }
    }
    for sink in &spec.sinks {
        match &sink.connector {
            SinkConnector::Object(object) => {
                let options: BTreeMap<_, _> =
                    object.options.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
                let allowed = StoreUrl::parse(&object.url).is_ok_and(|url| grants.allows_object(&url, &options));
                if !allowed {
                    let message = format!("tenant {tenant:?} may not write objects there");
                    let help = format!(
                        "ask whoever runs this server: `weir tenant grants {tenant} --object URL` with an admin token of the server; \
                         `options` have to be those of the grant"
                    );
                    refuse(&sink.span, message, help);
                }
            }
            SinkConnector::Stdout(_) => {
                let help = "use a `file` or `object` sink, or `blackhole` to try it".to_owned();
                refuse(&sink.span, "a job on a server has no standard output".into(), help);
            }
            SinkConnector::File(_) | SinkConnector::Blackhole => {}
        }
    }
    for operator in &spec.operators {
        let mut asked = vec![
            ("clock".to_owned(), "--clock".to_owned(), operator.grants.clock && !grants.clock),
            ("random".to_owned(), "--random".to_owned(), operator.grants.random && !grants.random),
        ];
        for name in &operator.grants.environment {
            asked.push((format!("env:{name}"), format!("--env {name}=VALUE"), !grants.environment.contains_key(name)));
        }
        for host in &operator.grants.http {
            let kind = if host.private { "http-private" } else { "http" };
            asked.push((format!("{kind}:{host}"), format!("--{kind} {host}"), !grants.allows_http(host)));
        }
        for (word, flag, is_missing) in asked {
            if is_missing {
                let message = format!("tenant {tenant:?} may not grant {word:?} to its operators");
                let help = format!(
                    "leave it out of `grants`, or ask whoever runs this server: `weir tenant grants {tenant} {flag}` with an \
                     admin token of the server"
                );
                refuse(&operator.span, message, help);
            }
        }
        if operator.limits.memory_bytes > quotas.memory_bytes && operator.limits != crate::plan::LimitsSpec::default() {
            let message = format!(
                "an instance may have {} bytes of memory, and all of tenant {tenant:?} {}",
                operator.limits.memory_bytes, quotas.memory_bytes
            );
            refuse(&operator.limits_span, message, remedy(tenant, "memory_bytes"));
        }
    }
    found
}

/// Why a path cannot be one below a tenant's directory.
fn path_fault(path: &Path) -> Option<&'static str> {
    if path.as_os_str().as_encoded_bytes().iter().any(u8::is_ascii_control) {
        return Some("has a control character");
    }
    let mut fault = None;
    for part in path.components() {
        match part {
            Component::Normal(_) | Component::CurDir => {}
            Component::ParentDir => fault = Some("leads out of its directory"),
            Component::RootDir | Component::Prefix(_) => return Some("is absolute"),
        }
    }
    fault
}

/// Where a key of a section without spans of its own is written.
fn find(spec: &PipelineSpec, key: &str) -> Option<Span> {
    let text = spec.text.text();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let begins = trimmed.strip_prefix('[').unwrap_or(trimmed);
        if begins.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(['=', ']'])) {
            let from = at + (line.len() - trimmed.len());
            return Some(from..from + trimmed.trim_end().len());
        }
        at += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::{ObjectGrant, Quotas, TenantGrants};

    const OPERATOR: &str = "[operator.o]\nplugin = \"count\"\ninputs = [\"s\"]\n";

    fn refusals(record: &TenantRecord, text: &str) -> Vec<String> {
        let text = format!("name = \"t\"\n{text}");
        // Some of it is refused to everybody.
        let spec = match crate::plan::parse(&text, Path::new("dir/pipeline.toml")) {
            Ok(spec) => spec,
            Err(found) => return vec![found.summary()],
        };
        admit("acme", record, &spec).iter().map(|found| format!("{}: {}", found.line, found.message)).collect()
    }

    fn granted() -> TenantRecord {
        let objects = vec![ObjectGrant { url: "s3://bucket/acme".into(), options: BTreeMap::new() }];
        let grants = TenantGrants {
            directory: Some("/srv/acme".into()),
            objects,
            clock: true,
            random: true,
            ..Default::default()
        };
        TenantRecord { grants, ..TenantRecord::new(0) }
    }

    const GENERATOR: &str = "[source.s]\nconnector = \"generator\"\n";
    const BLACKHOLE: &str = "[sink.k]\nconnector = \"blackhole\"\ninputs = [\"s\"]\n";

    #[test]
    fn without_grants_a_pipeline_reads_and_writes_nothing_of_the_server() {
        let nobody = TenantRecord::new(0);
        assert_eq!(refusals(&nobody, &format!("{GENERATOR}{BLACKHOLE}")), Vec::<String>::new());
        for (source, sink) in [
            ("[source.s]\nconnector = \"file\"\npath = \"a\"\nformat = \"lines\"\n", BLACKHOLE),
            (GENERATOR, "[sink.k]\nconnector = \"file\"\npath = \"a\"\ninputs = [\"s\"]\n"),
            (GENERATOR, "[sink.k]\nconnector = \"stdout\"\ninputs = [\"s\"]\n"),
            (GENERATOR, "[sink.k]\nconnector = \"object\"\nurl = \"s3://bucket/acme\"\ninputs = [\"s\"]\n"),
            (GENERATOR, "[sink.k]\nconnector = \"object\"\nurl = \"file:///etc\"\ninputs = [\"s\"]\n"),
        ] {
            let found = refusals(&nobody, &format!("{source}{sink}"));
            assert_eq!(found.len(), 1, "{source}{sink}{found:?}");
        }
        let operator = format!("{OPERATOR}grants = [\"clock\", \"random\", \"env:A\", \"http:a.example\"]\n");
        assert_eq!(refusals(&nobody, &format!("{GENERATOR}{operator}{BLACKHOLE}")).len(), 4);
    }

    #[test]
    fn with_grants_it_reaches_what_they_name_and_not_a_step_further() {
        let record = granted();
        for (path, fine) in [
            ("a", true),
            ("a/b.csv", true),
            ("./a/*.csv", true),
            ("/srv/acme/a", false),
            ("/etc/passwd", false),
            ("../other/a", false),
            ("a/../../other", false),
            ("a/..", false),
            ("a\\u0000b", false),
        ] {
            let source = format!("[source.s]\nconnector = \"file\"\npath = \"{path}\"\nformat = \"lines\"\n");
            assert_eq!(refusals(&record, &format!("{source}{BLACKHOLE}")).is_empty(), fine, "source {path}");
            let sink = format!("[sink.k]\nconnector = \"file\"\npath = \"{path}\"\ninputs = [\"s\"]\n");
            assert_eq!(refusals(&record, &format!("{GENERATOR}{sink}")).is_empty(), fine, "sink {path}");
        }
        for (url, fine) in [
            ("s3://bucket/acme/out", true),
            ("s3://bucket/acme2/out", false),
            ("s3://bucket/acme/../other", false),
            ("s3://other/acme", false),
        ] {
            let sink = format!("[sink.k]\nconnector = \"object\"\nurl = \"{url}\"\ninputs = [\"s\"]\n");
            assert_eq!(refusals(&record, &format!("{GENERATOR}{sink}")).is_empty(), fine, "{url}");
        }
        let elsewhere = "[sink.k]\nconnector = \"object\"\nurl = \"s3://bucket/acme/out\"\ninputs = [\"s\"]\noptions = { endpoint = \"https://elsewhere.example\" }\n";
        assert_eq!(refusals(&record, &format!("{GENERATOR}{elsewhere}")).len(), 1, "credentials would go elsewhere");
    }

    #[test]
    fn what_the_server_decides_and_what_a_quota_says_is_refused_at_its_line() {
        let record = TenantRecord { quotas: Quotas { checkpoint_interval_ms: 500, ..Quotas::default() }, ..granted() };
        let head = "[checkpoint]\ninterval = \"100ms\"\nstore = \"file:///tmp/x\"\n";
        let found = refusals(&record, &format!("{head}{GENERATOR}{BLACKHOLE}"));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("4: on a server"), "{found:?}");
        assert!(found[1].starts_with("3: tenant \"acme\" may take a checkpoint every 500ms"), "{found:?}");
    }
}
