"""Writes a text document, as flat OpenDocument: chapters of paragraphs with styled words, lists and tables.

    make_fodt.py CHAPTERS
"""
import random
import sys

SPACES = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "text", "table", "style"))
FORMAT = 'xmlns:fo="urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0"'
WORDS = "a document of words that are laid out in lines and pages with chapters tables lists and styles for every reader".split()


def words(dice, least, most):
    return " ".join(dice.choices(WORDS, k=dice.randint(least, most)))


def paragraph(dice):
    styled = f'<text:span text:style-name="strong">{words(dice, 1, 4)}</text:span>'
    return f"<text:p>{words(dice, 10, 60)} {styled} {words(dice, 10, 60)}.</text:p>"


def items(dice):
    return "<text:list>" + f"<text:list-item><text:p>{words(dice, 3, 9)}</text:p></text:list-item>" * dice.randint(3, 8) + "</text:list>"


def table(dice, name):
    columns = dice.randint(3, 6)
    cell = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
    rows = ("".join(cell.format(words(dice, 1, 3)) for _ in range(columns)) for _ in range(dice.randint(4, 15)))
    body = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
    return f'<table:table table:name="{name}"><table:table-column table:number-columns-repeated="{columns}"/>{body}</table:table>'


def chapter(number, dice):
    parts = [f'<text:h text:outline-level="1">{number}. {words(dice, 2, 5)}</text:h>']
    parts += [paragraph(dice) for _ in range(8)] + [items(dice), table(dice, f"table{number}")] + [paragraph(dice) for _ in range(4)]
    return "\n".join(parts)


dice = random.Random(1)
print(
    f'<?xml version="1.0" encoding="UTF-8"?>\n<office:document {SPACES} {FORMAT} office:version="1.2" '
    'office:mimetype="application/vnd.oasis.opendocument.text"><office:automatic-styles>'
    '<style:style style:name="strong" style:family="text"><style:text-properties fo:font-weight="bold"/></style:style>'
    "</office:automatic-styles><office:body><office:text>"
)
print("\n".join(chapter(number + 1, dice) for number in range(int(sys.argv[1]))))
print("</office:text></office:body></office:document>")
