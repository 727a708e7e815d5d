//! This crate's declarations match the headers: every function, every field of the structures, and the version.

use std::ffi::CStr;
use std::path::Path;

const BINDINGS: &str = include_str!("../src/lib.rs");

fn header(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/include/hakmem").join(name);
    let text = std::fs::read_to_string(file).unwrap();
    let mut code = String::new();
    let mut rest = text.as_str();
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").unwrap().1;
    }
    code + rest
}

fn headers() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/include/hakmem");
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".h"));
    names.sort();
    assert!(names.len() >= 2);
    names.iter().map(|name| header(name)).collect()
}

/// The Rust type of a C parameter, field or result.
fn rust_type(c: &str) -> String {
    let words: Vec<_> = c.split_whitespace().filter(|word| *word != "struct").collect();
    let c = words.join(" ");
    if let Some(pointed) = c.strip_suffix('*') {
        let constant = pointed.trim().starts_with("const ");
        let pointed = rust_type(pointed.trim().trim_start_matches("const "));
        if pointed.ends_with("_callback_t") {
            return format!("Option<{pointed}>");
        }
        return format!("*{} {pointed}", if constant { "const" } else { "mut" });
    }
    match c.as_str() {
        "void" | "FILE" => "c_void",
        "char" => "c_char",
        "int" => "c_int",
        "bool" => "bool",
        "size_t" => "usize",
        "uint64_t" => "u64",
        "int64_t" => "i64",
        "uint32_t" => "u32",
        other => other,
    }
    .to_string()
}

/// Turns "TYPE NAME" or "TYPE *NAME" into "name: type".
fn declaration(c: &str) -> String {
    let at = c.rfind(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap();
    format!("{}: {}", &c[at + 1..], rust_type(&c[..=at]))
}

fn functions() -> Vec<String> {
    let headers = headers();
    let code: String = headers.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let mut found = Vec::new();
    for statement in code.split(';') {
        let Some((_, text)) = statement.split_once("HAK_API ") else { continue };
        let mut text = text.to_string();
        // Attributes have names in capitals, and some have arguments.
        while let Some(at) = text.find("HAK_") {
            let end = text[at..].find([' ', '(']).map_or(text.len(), |length| at + length);
            let end = if text[end..].starts_with('(') { end + text[end..].find(')').unwrap() + 1 } else { end };
            text.replace_range(at..end, "");
        }
        let (head, parameters) = text.split_once('(').unwrap();
        let head = declaration(head.trim());
        let (name, kind) = head.split_once(": ").unwrap();
        let parameters = parameters.trim_end().strip_suffix(')').unwrap();
        let parameters: Vec<_> = parameters.split(',').map(str::trim).filter(|text| *text != "void").map(declaration).collect();
        let result = if kind == "c_void" { String::new() } else { format!(" -> {kind}") };
        found.push(format!("pub fn {name}({}){result};", parameters.join(", ")));
    }
    found
}

fn fields(code: &str, name: &str) -> Vec<String> {
    let start = format!("typedef struct {name} {{");
    let body = code.split_once(&start).unwrap().1.split_once('}').unwrap().0;
    let mut found = Vec::new();
    for statement in body.split(';').map(str::trim).filter(|text| !text.is_empty()) {
        let (kind, _) = statement.split_once(' ').unwrap();
        let mut names = statement.split(',').map(str::trim);
        found.push(declaration(names.next().unwrap()));
        found.extend(names.map(|name| format!("{name}: {}", rust_type(kind))));
    }
    found
}

#[test]
fn every_function_is_declared_as_in_the_headers() {
    let wanted = functions();
    assert!(wanted.len() > 40, "{}", wanted.len());
    for function in &wanted {
        assert!(BINDINGS.contains(function.as_str()), "{function}");
    }
    assert_eq!(BINDINGS.matches("pub fn hak_").count(), wanted.len());
}

#[test]
fn structures_have_the_fields_of_the_headers_in_their_order() {
    let code = headers();
    let mut structures = 0;
    for (at, _) in code.match_indices("typedef struct ") {
        let name = code[at..].split_whitespace().nth(2).unwrap();
        if !code[at..].split_once(';').unwrap().0.contains('{') {
            continue; // opaque
        }
        let bound = BINDINGS.split_once(&format!("pub struct {name}_t {{")).expect(name).1.split_once("\n}").unwrap().0;
        let lines: Vec<_> = bound.lines().map(str::trim).filter_map(|line| line.strip_prefix("pub ")).collect();
        let wanted: Vec<_> = fields(&code, name).iter().map(|field| format!("{field},")).collect();
        assert_eq!(lines, wanted, "{name}");
        structures += 1;
    }
    assert!(structures >= 5);
}

#[test]
fn the_version_is_the_header_s() {
    let code = header("hakmem.h");
    let number = |part: &str| {
        let start = format!("#define HAK_VERSION_{part} ");
        code.lines().find_map(|line| line.strip_prefix(&start)).unwrap().trim().to_string()
    };
    let version = [number("MAJOR"), number("MINOR"), number("PATCH")].join(".");
    assert_eq!(env!("CARGO_PKG_VERSION"), version);
    // SAFETY: a static string.
    assert_eq!(unsafe { CStr::from_ptr(hakmem_sys::hak_version()) }.to_str(), Ok(version.as_str()));
}
