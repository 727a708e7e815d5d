"""Finds every access in the sources whose order is stronger than relaxed, and weakens it.

It searches the text, so a new access needs no entry anywhere.  A site is named by its file, function, operation and word,
and by a number if these are not unique.
"""
import dataclasses
import re

SHORT = {"load_acquire": "load_relaxed", "store_release": "store_relaxed"}
OPERATION = re.compile(r"\b(load_acquire|store_release|atomic_thread_fence|atomic_signal_fence|(?:__)?atomic_(?:load|store|exchange|"
                       r"fetch_\w+?|compare_exchange(?:_strong|_weak)?)(?:_n)?(?:_explicit)?)\s*\(")
ORDER = re.compile(r"\b(memory_order_|__ATOMIC_)(acquire|release|acq_rel|seq_cst|consume|ACQUIRE|RELEASE|ACQ_REL|SEQ_CST|CONSUME)\b")
FUNCTION = re.compile(r"^(?!\s|#|typedef|struct|enum|return|else)[^;=\n]*?\b(\w+)\([^;{}]*\)\s*\{", re.M)


@dataclasses.dataclass(frozen=True)
class Site:
    name: str
    file: str
    start: int  # of the text to replace
    end: int
    order: str  # in the source: acquire, release, acq_rel, seq_cst
    weaker: dict  # each weaker order to try -> the text with this order


def blank(text):
    """The text with comments and strings replaced by as many blanks."""
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def closing(text, at):
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return i
    raise ValueError("a parenthesis without its end")


def word_of(arguments):
    """A short name of the accessed word: the last name in the first argument, without its indices."""
    first = re.split(r",(?![^()\[\]]*[)\]])", arguments, maxsplit=1)[0]
    first = re.sub(r"\[[^]]*\]|\(void\)", "", first)
    names = re.findall(r"[A-Za-z_]\w*", first)
    return names[-1] if "(" not in first else ".".join(n for n in names if n not in {"unit", "word", "index", "s"})[:40]


def weakened(operation, arguments):
    """The order in the source, and the text for each weaker order to try; None if the access is relaxed."""
    if operation in SHORT:
        return ("acquire" if operation == "load_acquire" else "release"), {"relaxed": f"{SHORT[operation]}({arguments})"}
    if operation.startswith("atomic_signal"):
        return None
    orders = ORDER.findall(arguments)
    if operation == "atomic_thread_fence":
        return orders[0][1], {"relaxed": "((void)0)"}
    if operation.endswith("_explicit") or operation.startswith("__"):
        if not orders:
            return None
        prefix = orders[0][0]
        relaxed = prefix + ("relaxed" if prefix == "memory_order_" else "RELAXED")
        texts = {"relaxed": f"{operation}({ORDER.sub(relaxed, arguments)})"}
        return orders[0][1].lower(), texts
    both = "compare_exchange" in operation
    one_less = "acquire" if operation == "atomic_load" else "release" if operation == "atomic_store" else "acq_rel"
    texts = {}
    for order in ("relaxed", one_less):
        failed = f", memory_order_{'acquire' if order == 'acq_rel' else order}" if both else ""
        texts[order] = f"{operation}_explicit({arguments}, memory_order_{order}{failed})"
    return "seq_cst", texts


def sites_of(path, file):
    text = path.read_text()
    bare = blank(text)
    functions = [(m.start(), m.group(1)) for m in FUNCTION.finditer(bare)]
    found, names = [], {}
    for match in OPERATION.finditer(bare):
        line = bare[bare.rfind("\n", 0, match.start()) + 1:match.start()]
        if line.lstrip().startswith("#"):
            continue  # the definition of a macro
        end = closing(bare, match.end() - 1)
        result = weakened(match.group(1), text[match.end():end])
        if result is None:
            continue
        function = max((f for f in functions if f[0] <= match.start()), default=(0, "?"))[1]
        verb = re.sub(r"_explicit$|^_*atomic_|_n$", "", match.group(1).removesuffix("_explicit"))
        name = f"{file} {function} {verb} {word_of(text[match.end():end])}"
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:
            name += f" {names[name]}"
        found.append(Site(name, file, match.start(), end + 1, result[0], result[1]))
    return found


def all_sites(source):
    """The sites of all files except base/atomics.h, which defines the names, and the audits, which are not explored."""
    files = sorted(p for p in source.rglob("*") if p.suffix in {".c", ".h"} and p.stem != "audit")
    return [site for path in files if (file := path.relative_to(source).as_posix()) != "base/atomics.h" for site in sites_of(path, file)]


def with_order(source, site, order):
    text = (source / site.file).read_text()
    return text[:site.start] + site.weaker[order] + text[site.end:]
