//! A server that holds the data of its tenants, each under a tag, and answers /debug/pprof/heap:
//!
//!     cargo run --example server &
//!     curl -s localhost:8080/store/7              # a MiB for tenant 7
//!     curl -s localhost:8080/debug/pprof/heap -o heap.pb
//!     hakmem profile "$(pidof server)" --by tag

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

#[global_allocator]
static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;

fn answer(mut stream: TcpStream, stored: &mut Vec<Vec<u8>>) -> std::io::Result<()> {
    let mut request = String::new();
    BufReader::new(&stream).read_line(&mut request)?;
    let path = request.split_whitespace().nth(1).unwrap_or("/");
    stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n")?;
    if path == "/debug/pprof/heap" {
        return hakmem::write_pprof(stream.as_raw_fd()).map_err(std::io::Error::other);
    }
    if let Some(tenant) = path.strip_prefix("/store/").and_then(|number| number.parse().ok()) {
        let _tag = hakmem::tag(tenant);
        stored.push(vec![1; 1 << 20]);
    }
    writeln!(stream, "{} bytes are live", hakmem::stats().live)
}

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "localhost:8080".to_string());
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    let mut stored = Vec::new();
    for stream in listener.incoming() {
        if let Err(error) = answer(stream?, &mut stored) {
            eprintln!("a request failed: {error}");
        }
    }
    Ok(())
}
