//! What each import lets a component do, in plain words: what somebody wants to know who runs code of others.

use serde::Serialize;

/// One import, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// As the component names it.
    pub import: String,
    /// What it can do with it.
    pub meaning: &'static str,
    /// The grant of a pipeline that makes more of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<&'static str>,
}

/// By the beginning of the name; the first that fits. The rest of WASI is not served.
const MEANINGS: &[(&str, &str, Option<&str>)] = &[
    ("weir:plugin/types@", "the types of the contract: no function", None),
    ("weir:plugin/output@", "emits records, and rejects those that it cannot take", None),
    ("weir:plugin/log@", "writes lines to the log of its job", None),
    ("weir:plugin/metrics@", "counts and measures under names of its own", None),
    ("weir:plugin/timers@", "asks for the time of the call, and to be called at a time", None),
    ("weir:plugin/http@", "sends requests over HTTP: to no host, without a grant", Some("http:HOST")),
    ("weir:plugin/snapshots@", "writes its state into checkpoints, and reads it back", None),
    ("wasi:clocks/wall-clock@", "asks for the time of day: gets the time of the call, without a grant", Some("clock")),
    ("wasi:clocks/monotonic-clock@", "measures time: no time passes in a call, without a grant", Some("clock")),
    ("wasi:random/", "draws random bytes: the same ones in every run, without a grant", Some("random")),
    ("wasi:cli/environment@", "reads arguments and the environment: both are empty, without a grant", Some("env:NAME")),
    ("wasi:cli/stdout@", "prints: each line goes to the log of its job", None),
    ("wasi:cli/stderr@", "prints errors: each line goes to the log of its job", None),
    ("wasi:cli/stdin@", "reads standard input: it is at its end", None),
    ("wasi:cli/terminal-", "asks whether it is on a terminal: it is not", None),
    ("wasi:cli/exit@", "ends its program: that is a trap", None),
    ("wasi:io/", "streams, which printing needs; whatever waits for the world outside traps", None),
    ("wasi:filesystem/preopens@", "asks which folders it may use: none", None),
    ("wasi:filesystem/", "works with files: there are none, and a call traps", None),
    ("wasi:sockets/", "speaks to the network: a call traps", None),
    ("wasi:http/", "speaks HTTP: a call traps", None),
    ("wasi:", "is of WASI and not served: a call traps", None),
];

/// What an import is for.
pub(super) fn capability(import: &str) -> Capability {
    let known = MEANINGS.iter().find(|(prefix, ..)| import.starts_with(prefix));
    let (meaning, grant) =
        known.map_or(("no host of this contract offers it", None), |(_, text, grant)| (*text, *grant));
    Capability { import: import.to_owned(), meaning, grant }
}

#[cfg(test)]
mod tests {
    use super::super::contract_files;
    use super::*;

    #[test]
    fn every_interface_of_the_contract_that_a_plugin_may_import_has_a_meaning() {
        let worlds = contract_files().into_iter().find(|(name, _)| *name == "worlds.wit").expect("it is there").1;
        let imports = worlds.lines().filter_map(|line| line.trim().strip_prefix("import ")?.strip_suffix(';'));
        let mut count = 0;
        for name in imports.chain(["types", "http"]) {
            let known = capability(&format!("weir:plugin/{name}@0.1.0"));
            assert!(!known.meaning.contains("no host"), "{name}");
            count += 1;
        }
        assert!(count >= 6, "{count}");
    }

    #[test]
    fn what_is_not_served_says_so() {
        assert_eq!(capability("wasi:sockets/tcp@0.2.6").meaning, "speaks to the network: a call traps");
        assert_eq!(capability("wasi:keyvalue/store@0.2.0").meaning, "is of WASI and not served: a call traps");
        assert_eq!(capability("acme:bank/transfer").meaning, "no host of this contract offers it");
        assert_eq!(capability("wasi:clocks/wall-clock@0.2.3").grant, Some("clock"));
    }
}
