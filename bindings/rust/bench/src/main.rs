//! A program of real crates: `hakmem-bench WORKLOAD ROUNDS` runs a workload, then prints a number that is the same under every allocator,
//! and its peak in KiB.

use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use quote::ToTokens;
use serde_json::{json, Value};
use syn::visit_mut::{self, VisitMut};
use tantivy::collector::{Count, TopDocs};
use tantivy::query::QueryParser;
use tantivy::schema::{Schema, STORED, TEXT};
use tantivy::{doc, Index, IndexWriter, TantivyDocument};

#[cfg(feature = "hakmem")]
#[global_allocator]
static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(feature = "snmalloc")]
#[global_allocator]
static ALLOCATOR: snmalloc_rs::SnMalloc = snmalloc_rs::SnMalloc;

/// A fixed sequence of random numbers: xorshift.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    /// A random word of the texts; some words are much more frequent than others.
    fn word(&mut self) -> String {
        const PARTS: [&str; 16] = ["a", "be", "con", "de", "en", "for", "ga", "hi", "in", "ka", "lo", "mi", "no", "re", "ta", "un"];
        let most = 1 + self.below(1 << 15);
        let mut number = self.below(most);
        let mut word = String::new();
        loop {
            word += PARTS[number % PARTS.len()];
            number /= PARTS.len();
            if number == 0 {
                return word;
            }
        }
    }

    fn text(&mut self, words: usize) -> String {
        let words: Vec<_> = (0..words).map(|_| self.word()).collect();
        words.join(" ")
    }
}

/// Records as a web API sends them: nested, with strings of all lengths.
fn records(count: usize, seed: u64) -> String {
    let mut numbers = Numbers(seed);
    let records: Vec<_> = (0..count)
        .map(|id| {
            let tags: Vec<_> = (0..numbers.below(6)).map(|_| numbers.word()).collect();
            let length = 3 + numbers.below(60);
            json!({ "id": id, "name": numbers.word(), "tags": tags, "about": numbers.text(length),
                    "place": { "x": numbers.below(1000) as f64 / 8.0, "y": numbers.below(1000), "known": numbers.below(2) == 0 } })
        })
        .collect();
    Value::from(records).to_string()
}

/// serde_json: parses text into a tree of maps and strings, changes it, and writes it as text.
fn json(rounds: usize) -> usize {
    let text = records(4000, 1);
    let mut length = 0;
    for round in 0..rounds {
        let mut tree: Value = serde_json::from_str(&text).unwrap();
        for record in tree.as_array_mut().unwrap() {
            record["name"] = Value::from(format!("{} {round}", record["about"].as_str().unwrap()));
            record.as_object_mut().unwrap().remove("tags");
        }
        length += tree.to_string().len();
    }
    length
}

/// serde_json: four threads parse, a fifth takes the trees and frees them.
fn pipeline(rounds: usize) -> usize {
    let (send, receive) = mpsc::sync_channel::<Value>(64);
    thread::scope(|scope| {
        for parser in 0..4 {
            let send = send.clone();
            scope.spawn(move || {
                let text = records(100, 1 + parser);
                for _ in 0..rounds {
                    send.send(serde_json::from_str(&text).unwrap()).unwrap();
                }
            });
        }
        drop(send);
        receive.into_iter().map(|tree| tree.as_array().unwrap().len()).sum()
    })
}

/// syn and quote: parses, copies and changes Rust syntax trees, which are many small boxes, and turns them into text.
fn syntax(rounds: usize) -> usize {
    struct Rename;
    impl VisitMut for Rename {
        fn visit_ident_mut(&mut self, name: &mut syn::Ident) {
            *name = syn::Ident::new(&format!("{name}_"), name.span());
        }
        fn visit_expr_mut(&mut self, expression: &mut syn::Expr) {
            visit_mut::visit_expr_mut(self, expression);
        }
    }
    const SOURCES: [&str; 4] = [
        include_str!("main.rs"),
        include_str!("../../hakmem-sys/src/lib.rs"),
        include_str!("../../hakmem-sys/tests/headers.rs"),
        include_str!("../../hakmem/tests/program.rs"),
    ];
    let mut length = 0;
    for _ in 0..rounds {
        for source in SOURCES {
            let tree = syn::parse_file(source).unwrap();
            let mut renamed = tree.clone();
            Rename.visit_file_mut(&mut renamed);
            length += renamed.into_token_stream().to_string().len() - tree.into_token_stream().to_string().len();
        }
    }
    length
}

/// tantivy: an index of texts, written by two worker threads, and searched.
fn search(rounds: usize) -> usize {
    let mut schema = Schema::builder();
    let title = schema.add_text_field("title", TEXT | STORED);
    let body = schema.add_text_field("body", TEXT);
    let index = Index::create_in_ram(schema.build());
    let mut writer: IndexWriter = index.writer_with_num_threads(2, 64 << 20).unwrap();
    let mut numbers = Numbers(7);
    for _ in 0..rounds {
        for _ in 0..500 {
            let length = 20 + numbers.below(200);
            writer.add_document(doc!(title => numbers.text(4), body => numbers.text(length))).unwrap();
        }
    }
    writer.commit().unwrap();
    writer.wait_merging_threads().unwrap();
    let searcher = index.reader().unwrap().searcher();
    let parser = QueryParser::for_index(&index, vec![title, body]);
    let mut found = 0;
    for _ in 0..rounds * 20 {
        let query = parser.parse_query(&numbers.text(3)).unwrap();
        let (best, count) = searcher.search(&query, &(TopDocs::with_limit(10), Count)).unwrap();
        found += count;
        for (_, address) in best {
            let document: TantivyDocument = searcher.doc(address).unwrap();
            assert!(document.get_first(title).is_some());
        }
    }
    found
}

/// The process's peak resident set, in KiB. The peak that wait4 reports includes part of the parent's.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().to_string()
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let (name, rounds) = match words.as_slice() {
        [name, rounds] => (name.as_str(), rounds.parse()),
        _ => ("", "0".parse()),
    };
    let work = match name {
        "json" => json,
        "pipeline" => pipeline,
        "search" => search,
        "syntax" => syntax,
        _ => {
            eprintln!("usage: hakmem-bench json|pipeline|search|syntax ROUNDS");
            return ExitCode::from(2);
        }
    };
    let Ok(rounds) = rounds else {
        eprintln!("hakmem-bench: the rounds are a number");
        return ExitCode::from(2);
    };
    println!("{}", work(rounds));
    println!("{}", peak());
    ExitCode::SUCCESS
}
