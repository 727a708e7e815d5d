"""Writes a page of the reference from a public header, in MyST's Markdown.

A header's first comment begins the page, `/* ---- Title ---- since 0.1 */` begins a section, and a comment before a declaration
describes it.  It also describes the declarations that follow without a blank line and without their own comment, and the same holds
for the fields of a structure.  A declaration without a description is an error, since the reference can be fixed only in the header.

C++ classes are shown as a whole, without function bodies and private parts.
"""
import dataclasses
import re

SECTION = re.compile(r"-{4}\s*(?P<title>.*?)\s*-{4}\s*(?:since (?P<since>[\d.]+))?[;,]?\s*(?P<rest>.*)", re.S)
NAME = re.compile(r"\bhak(?:_\w+|::\w+)\b|\bHAK_\w+\b")
PAGE = re.compile(r"\bdocs/[\w/-]+\.md\b")
ATTRIBUTE = re.compile(r"\bHAK_(?:API|MALLOC|MUST_USE|ALLOC_SIZE\([^)]*\))\s*")
KINDS = {"function": "c:function", "macro": "c:macro", "type": "c:type", "class": "cpp:class", "cpp": "cpp:function"}


class Undescribed(Exception):
    """A declaration that has no description or cannot be parsed."""


@dataclasses.dataclass
class Entity:
    kind: str  # a key of KINDS
    name: str
    text: str  # the declaration, as the reference shows it
    fields: list = dataclasses.field(default_factory=list)  # for a structure: (name, type, comment)
    code: str = ""  # for a class: its public part


@dataclasses.dataclass
class Group:
    """Declarations with one description."""
    comment: str
    entities: list


@dataclasses.dataclass
class Section:
    title: str
    since: str
    comment: str
    groups: list


def plain(comment):
    """The text of a comment without its stars."""
    body = re.sub(r"^/\*+|\*/$", "", comment.strip())
    return "\n".join(re.sub(r"^\s*\* ?", "", line, count=1) if number else line.strip() for number, line in enumerate(body.split("\n"))).strip()


def closing(text, at):
    """The position after the brace that closes the one at `at`."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.end()
    raise Undescribed("a brace is not closed")


def pieces(text):
    """Yields the parts of a header in order: ("comment" | "blank" | "code", text)."""
    at = 0
    while at < len(text):
        if match := re.compile(r"[ \t]*/\*.*?\*/[ \t]*\n?", re.S).match(text, at):
            yield "comment", match[0]
        elif match := re.compile(r"[ \t]*\n").match(text, at):
            yield "blank", ""
        elif match := re.compile(r"[ \t]*//[^\n]*\n").match(text, at):
            yield "bracket", ""
        elif match := re.compile(r"#(?:[^\n]*\\\n)*[^\n]*\n?").match(text, at):
            yield "code", match[0]
        elif match := re.compile(r'(?:extern "C" \{|namespace hak \{|\}[^\n;]*)\n').match(text, at):
            yield "bracket", ""
        elif match := re.compile(r"[^;{]*[;{]").match(text, at):
            end = match.end()
            if match[0].endswith("{"):
                end = closing(text, end - 1)
                rest = re.compile(r"[^;\n]*;").match(text, end)
                if rest and text[at:end].startswith(("typedef", "class", "struct", "enum", "template")):
                    end = rest.end()
            line = re.compile(r"[ \t]*(?:/\*.*?\*/)?[ \t]*\n?", re.S).match(text, end)
            yield "code", text[at:line.end()]
            at = line.end()
            continue
        else:
            raise Undescribed(f"can't be read: {text[at:at + 60]!r}")
        at = match.end()


def fields_of(body):
    """Name, type and comment of each field; a field without a comment has that of the field before."""
    comment, fields = "", []
    for declared, told in re.findall(r"([^;{}]+);[ \t]*(/\*.*?\*/)?", re.sub(r"^\s*/\*.*?\*/\s*$", "", body, flags=re.M | re.S), re.S):
        comment = plain(told) if told else comment
        kind, names = re.fullmatch(r"\s*(.*?[\s*])([\w\[\]]+(?:\s*,\s*[\w\[\]]+)*)\s*", declared, re.S).groups()
        if not comment:
            raise Undescribed(f"the field {names}")
        fields += [(name.strip(), " ".join(kind.split()), comment) for name in names.split(",")]
    return fields


def without_bodies(code):
    """What a class shows to its users: the public part, with a semicolon after each function."""
    head, body = code.split("{", 1)
    body = body[:body.rindex("}")]
    shown, public, at = [], head.split()[0] == "struct", 0
    while at < len(body):
        if match := re.compile(r"\s*(public|private|protected):").match(body, at):
            public, at = match[1] == "public", match.end()
            continue
        if match := re.compile(r"\s*/\*.*?\*/", re.S).match(body, at):
            text, at = match[0], match.end()
        elif match := re.compile(r"\s*[^;{]*?(?:= (?:default|delete))?[;{]").match(body, at):
            text = match[0]
            if text.endswith("{"):
                text = re.sub(r"\)((?: noexcept)?) : .*$", r")\1", text[:-1].rstrip(), flags=re.S) + ";"
                at = body_end(body, match.end() - 1)
            else:
                at = match.end()
        else:
            break
        if public:
            shown.append(text)
    return " ".join(head.split()) + " {\npublic:" + "".join(shown) + "\n};"


def body_end(text, at):
    """The position after a function's body; braces before the body may belong to a member's initial value."""
    end = closing(text, at)
    while match := re.compile(r"\s*\{").match(text, end):
        end = closing(text, match.end() - 1)
    return end


def entity_of(code):
    """The declared entity, or None if a reader of the reference does not use it."""
    text = re.sub(r"/\*.*?\*/", "", code, flags=re.S)
    if macro := re.match(r"#define\s+(HAK_\w+)(\([^)]*\))?", text):
        return None if re.fullmatch(r"HAKMEM_\w+", macro[1]) else Entity("macro", macro[1], macro[1] + (macro[2] or ""))
    if text.startswith("#") or text.startswith("namespace"):
        return None
    if match := re.match(r"typedef struct \w+ \{(.*)\} (\w+);", code, re.S):
        return Entity("type", match[2], match[2], fields=fields_of(match[1]))
    if match := re.match(r"typedef .*?(\w+)(?:\(.*\))?;", text, re.S):
        return Entity("type", match[1], " ".join(text.removeprefix("typedef").rstrip().rstrip(";").split()))
    if match := re.match(r"(template <[^>]*>\s*)?class (\w+)", text):
        return Entity("class", "hak::" + match[2], f"{match[1] or ''}hak::{match[2]}".replace("\n", " "), code=without_bodies(code))
    signature = " ".join(ATTRIBUTE.sub("", re.split(r"[;{]", text, maxsplit=1)[0]).split())
    if match := re.search(r"\b(hak_\w+)\(", signature):
        return Entity("function", match[1], signature)
    if "operator" in signature:
        return None  # comparisons, which the class's description mentions
    if match := re.search(r"\b(\w+)\(", signature):
        whole = re.sub(r"^\[\[\w+\]\] |\binline ", "", signature).replace(match[1] + "(", "hak::" + match[1] + "(", 1)
        return Entity("cpp", "hak::" + match[1], whole)
    raise Undescribed(f"can't be read: {signature!r}")


def read(text):
    """The header's first comment and its sections."""
    parts = list(pieces(text))
    intro, sections = plain(parts[0][1]), [Section("", "", "", [])]
    comment, group, seen = "", None, set()
    for kind, piece in parts[1:]:
        if kind == "comment":
            told = plain(piece)
            if match := SECTION.fullmatch(told):
                sections.append(Section(match["title"], match["since"] or "", match["rest"], []))
                comment, group = "", None
            else:
                comment, group = told, None
        elif kind in ("blank", "bracket"):
            comment, group = "", None
        elif entity := entity_of(piece):
            if entity.name in seen:
                continue  # for other compilers
            seen.add(entity.name)
            trailing = re.search(r"/\*(.*?)\*/\s*$", piece, re.S) if entity.kind == "macro" else None
            told = comment or (plain(trailing[0]) if trailing else "")
            if group is None:
                if not told:
                    raise Undescribed(entity.name)
                group = Group(told, [])
                sections[-1].groups.append(group)
            group.entities.append(entity)
    return intro, [section for section in sections if section.groups]


def marked_up(text):
    """A comment as Markdown: names of the interface become code, which links.py links to their descriptions; indented lines are code."""
    out = []
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.split("\n")
        if all(line.startswith("  ") for line in lines):
            out.append("```c\n" + "\n".join(line[2:] for line in lines) + "\n```")
            continue
        words = re.split(r"(`[^`]*`)", " ".join(line.strip() for line in lines))
        out.append("".join(word if word.startswith("`") else prose(word) for word in words))
    return "\n\n".join(out)


def sentence(text):
    """The text with a capital at its beginning, except before the project's name."""
    return text if text.startswith("hak") else text[:1].upper() + text[1:]


def prose(text):
    text = re.sub(r"([*\[\]<>]|(?<!\w)_|_(?!\w))", r"\\\1", text)
    text = NAME.sub(r"`\g<0>`", text)
    return PAGE.sub(r"[\g<0>](/\g<0>)", text)


def block_of(group, language):
    """The directives of a group: one for all entities of a kind, except those that show their parts."""
    runs = []
    for entity in group.entities:
        whole = bool(entity.fields or entity.code)
        if runs and not whole and runs[-1][0].kind == entity.kind and not runs[-1][0].fields:
            runs[-1].append(entity)
        else:
            runs.append([entity])
    for entities in runs:
        for entity in entities:  # the description of all follows the last one
            yield f"`````{{{KINDS[entity.kind]}}} {entity.text}" + "\n`````\n" * (entity is not entities[-1])
        if group.comment:
            yield "\n" + marked_up(group.comment)
        for name, declared, told in entities[0].fields:
            if name == entities[0].fields[0][0]:
                yield "\n| field | type | what it is |\n|---|---|---|"
            yield f"| `{name}` | `{declared}` | {marked_up(told).replace('|', '&#124;')} |"
        if entities[0].code:
            yield f"\n```{language}\n{entities[0].code}\n```"
        yield "`````\n"


def page(text, path):
    """The page of a header."""
    intro, sections = read(text)
    head, _, body = intro.partition("\n")
    name, _, title = head.partition(" - ")
    language = "cpp" if path.endswith(".hpp") else "c"
    out = [f"# {name}", "", f"    #include <{path.removeprefix('include/')}>", "", marked_up(sentence(title) + "\n" + body), ""]
    for section in sections:
        if section.title:
            out += [f"## {section.title}", ""]
        told = (f"Since {section.since}. " if section.since else "") + sentence(section.comment)
        if told:
            out += [marked_up(told), ""]
        for group in section.groups:
            out += block_of(group, language)
    return "\n".join(out) + "\n"


def names(text):
    """Every name that a header describes, with its kind."""
    return {entity.name: KINDS[entity.kind] for section in read(text)[1] for group in section.groups for entity in group.entities}
