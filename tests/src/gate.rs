//! A gate before an HTTP server that others wrote: of the requests that create an object if there is none, one at a time goes
//! through. Some S3 servers look whether an object exists and write it afterwards; behind the gate they do it as a store that weir
//! accepts does, and the rest of what they are is tested.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// A gate. It ends with the test's process.
#[derive(Debug)]
pub struct Gate {
    address: SocketAddr,
}

impl Gate {
    /// A gate before the server at a port of the loopback interface.
    pub fn before(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let creates = Arc::new(Mutex::new(()));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let creates = Arc::clone(&creates);
                std::thread::spawn(move || drop(pass(stream, port, &creates)));
            }
        });
        Self { address }
    }

    /// Where it answers.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Passes one request on and its answer back; then both connections end.
fn pass(mut client: TcpStream, port: u16, creates: &Mutex<()>) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut head = String::new();
    let (mut length, mut is_create) = (0, false);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line == "\r\n" {
            break;
        }
        match line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim())) {
            Some((name, _)) if name == "connection" => continue,
            Some((name, value)) if name == "content-length" => length = value.parse().unwrap_or(0),
            Some((name, _)) if name == "if-none-match" => is_create = true,
            _ => {}
        }
        head.push_str(&line);
    }
    head.push_str("connection: close\r\n\r\n");
    let mut request = head.into_bytes();
    let at = request.len();
    request.resize(at + length, 0);
    reader.read_exact(&mut request[at..])?;

    let alone = is_create.then(|| creates.lock().unwrap_or_else(PoisonError::into_inner));
    let mut server = TcpStream::connect(("127.0.0.1", port))?;
    server.write_all(&request)?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    drop(alone);
    client.write_all(&answer)
}
