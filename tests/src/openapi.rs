//! The OpenAPI document of a server, as far as tests read it: every operation, and for each a request that is
//! well-formed.
//!
//! Requests are made from the schemas alone, so that a route which is added is asked for without anybody thinking of
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use crate::cargo_target;
use crate::server::{Client, Server};

/// The methods that an address may take. HEAD goes with GET.
pub const METHODS: [&str; 7] = ["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE"];

/// An operation of the document.
#[derive(Clone, Debug)]
pub struct Operation {
    /// In capital letters.
    pub method: String,
    /// With `{names}`.
    pub path: String,
    /// The names in it.
    pub names: Vec<String>,
    /// Nobody without a token may ask for it.
    pub needs_token: bool,
    /// The type and the schema of its body.
    pub body: Option<(String, Value)>,
    /// The statuses that it says it answers with.
    pub statuses: BTreeSet<u16>,
}

impl Operation {
    /// The path with values, which are put in as they are.
    ///
    /// # Panics
    ///
    /// If one is missing.
    pub fn at(&self, values: &BTreeMap<&str, String>) -> String {
        let mut path = self.path.clone();
        for name in &self.names {
            let value = values.get(name.as_str()).unwrap_or_else(|| panic!("no value for {name} of {path}"));
            path = path.replace(&format!("{{{name}}}"), value);
        }
        path
    }

    /// Whether it is about a tenant.
    pub fn is_of_tenant(&self) -> bool {
        self.names.iter().any(|name| name == "tenant")
    }
}

/// The document.
#[derive(Clone, Debug)]
pub struct Document(pub Value);

impl Document {
    /// That of a server.
    pub fn of(client: &Client) -> Self {
        Self(client.get("/openapi.json").expect(200))
    }

    /// All operations.
    pub fn operations(&self) -> Vec<Operation> {
        let mut found = Vec::new();
        for (path, item) in self.0["paths"].as_object().expect("paths") {
            for method in METHODS {
                let operation = &item[method.to_ascii_lowercase()];
                if operation.is_null() {
                    continue;
                }
                let names = path.split(['{', '}']).skip(1).step_by(2).map(str::to_owned).collect();
                let content = operation["requestBody"]["content"].as_object();
                let body = content.and_then(|content| content.iter().next());
                let statuses = operation["responses"].as_object().expect("answers");
                found.push(Operation {
                    method: method.to_owned(),
                    path: path.clone(),
                    names,
                    needs_token: operation["security"].as_array().is_some_and(|all| !all.is_empty()),
                    body: body.map(|(kind, body)| (kind.clone(), body["schema"].clone())),
                    statuses: statuses.keys().filter_map(|status| status.parse().ok()).collect(),
                });
            }
        }
        found
    }

    /// What a reference stands for.
    ///
    /// # Panics
    ///
    /// If it stands for nothing.
    pub fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let Some(reference) = schema["$ref"].as_str() else { return schema };
        let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} is elsewhere"));
        self.0.pointer(pointer).unwrap_or_else(|| panic!("{reference} stands for nothing"))
    }

    /// Every reference anywhere in it.
    pub fn references(&self) -> BTreeSet<String> {
        fn walk(value: &Value, found: &mut BTreeSet<String>) {
            match value {
                Value::Object(members) => {
                    found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                    members.values().for_each(|value| walk(value, found));
                }
                Value::Array(values) => values.iter().for_each(|value| walk(value, found)),
                _ => {}
            }
        }
        let mut found = BTreeSet::new();
        walk(&self.0, &mut found);
        found
    }

    /// The least that a schema takes: what is required, and of that the first or the smallest.
    pub fn example(&self, schema: &Value) -> Value {
        let schema = self.resolve(schema);
        for any in ["oneOf", "anyOf"] {
            if let Some(first) = schema[any].as_array().and_then(|all| all.last()) {
                return self.example(first);
            }
        }
        if let Some(all) = schema["allOf"].as_array() {
            let mut whole = json!({});
            for part in all {
                if let (Some(whole), Value::Object(part)) = (whole.as_object_mut(), self.example(part)) {
                    whole.extend(part);
                }
            }
            return whole;
        }
        if let Some(first) = schema["enum"].as_array().and_then(|all| all.first()) {
            return first.clone();
        }
        let kind = match &schema["type"] {
            Value::Array(all) => all.iter().find(|kind| *kind != "null").and_then(Value::as_str).unwrap_or("object"),
            kind => kind.as_str().unwrap_or("object"),
        };
        match kind {
            "string" => json!("example"),
            "integer" | "number" => schema.get("minimum").filter(|least| **least != 0).cloned().unwrap_or(json!(1)),
            "boolean" => json!(false),
            "array" => json!([]),
            _ => {
                let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
                Value::Object(
                    required.map(|name| (name.to_owned(), self.example(&schema["properties"][name]))).collect(),
                )
            }
        }
    }

    /// A body for an operation, with its type: none if it takes none.
    pub fn body(&self, operation: &Operation) -> Option<(String, Vec<u8>)> {
        let (kind, schema) = operation.body.as_ref()?;
        let bytes = match kind.as_str() {
            "application/json" => self.example(schema).to_string().into_bytes(),
            // The eight bytes with which a component begins.
            _ => b"\0asm\x0d\0\x01\0".to_vec(),
        };
        Some((kind.clone(), bytes))
    }
}

/// One of everything that an address can name, in a tenant `victim`: so that whoever may not have it would find it.
/// Its job has finished, so the store stands still. Gives what stands for each name in a path.
pub fn one_of_everything(server: &Server) -> BTreeMap<&'static str, String> {
    server.tenant("victim", None);
    let admin = server.admin();
    let component = fs::read(cargo_target().join("release/plugins/count.wasm")).expect("the plugins are built");
    admin.put_wasm("/v1/tenants/victim/plugins/kept/1.0.0", &component).expect(201);
    let pipeline = r#"
        name = "steady"
        [source.made]
        connector = "generator"
        format = "json"
        records = 100
        [operator.op]
        plugin = "kept@1.0.0"
        inputs = ["made"]
        [sink.none]
        connector = "blackhole"
        inputs = ["op"]
    "#;
    admin.put("/v1/tenants/victim/jobs/steady", &json!({ "pipeline": pipeline })).expect(200);
    admin.until_job("victim", "steady", "finished");
    admin.post("/v1/tenants/victim/jobs/steady/savepoints", &json!({ "name": "kept" })).expect(201);
    let token = admin.post("/v1/tenants/victim/tokens", &json!({ "role": "read" })).expect(201);
    BTreeMap::from([
        ("tenant", "victim".to_owned()),
        ("job", "steady".to_owned()),
        ("name", "kept".to_owned()),
        ("version", "1.0.0".to_owned()),
        ("digest", blake3::hash(&component).to_hex().to_string()),
        ("id", token["id"].as_str().expect("an id").to_owned()),
    ])
}
