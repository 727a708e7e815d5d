"""Writes a PDF of many pages: text in several fonts with kerning, curves, transparent fills, a gradient.

    make_pdf.py PAGES
"""
import random
import sys

FONTS = ("Times-Roman", "Helvetica-Bold", "Courier", "Times-Italic")
RESOURCES = ("<< /Font << " + " ".join(f"/F{n} << /Type /Font /Subtype /Type1 /BaseFont /{font} >>" for n, font in enumerate(FONTS)) + " >>"
             " /ExtGState << /Half << /ca 0.5 /CA 0.5 >> >> /Shading << /Sky << /ShadingType 2 /ColorSpace /DeviceRGB /Coords [0 0 600 800]"
             " /Function << /FunctionType 2 /Domain [0 1] /C0 [1 1 0.8] /C1 [0.6 0.8 1] /N 1 >> >> >> >>")
WORDS = "allocator block bin class heap page region slab span thread unit zone of the and with from under over between".split()


def line(dice, page, row):
    words = " ".join(f"[({word}) {dice.randint(-400, -200)}] TJ" for word in dice.choices(WORDS, k=12))
    return f"BT /F{dice.randrange(len(FONTS))} 9 Tf 40 {60 + 11 * row} Td (page {page} line {row} ) Tj {words} ET"


def petal(dice):
    start, *bends = [f"{dice.randint(30, 570)} {dice.randint(30, 770)}" for _ in range(6)]
    return f"/Half gs {dice.random():.2f} {dice.random():.2f} 0.5 rg {start} m {' '.join(bends[:3])} c {' '.join(bends[3:])} {start} c b"


def content(dice, page):
    return "\n".join(["q /Sky sh Q", *(f"q {petal(dice)} Q" for _ in range(12)), *(line(dice, page, row) for row in range(60))])


def objects(pages):
    dice = random.Random(1)
    yield "<< /Type /Catalog /Pages 2 0 R >>"
    yield f"<< /Type /Pages /Count {pages} /Kids [{' '.join(f'{4 + 2 * page} 0 R' for page in range(pages))}] >>"
    yield RESOURCES
    for page in range(pages):
        yield f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources 3 0 R /Contents {5 + 2 * page} 0 R >>"
        text = content(dice, page)
        yield f"<< /Length {len(text)} >> stream\n{text}\nendstream"


def document(pages):
    text, offsets = "%PDF-1.4\n", []
    for number, body in enumerate(objects(pages), 1):
        offsets.append(len(text))
        text += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    count = len(offsets) + 1
    return f"{text}xref\n0 {count}\n0000000000 65535 f \n{table}trailer << /Size {count} /Root 1 0 R >>\nstartxref\n{len(text)}\n%%EOF\n"


print(document(int(sys.argv[1])), end="")
