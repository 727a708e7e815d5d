"""Writes a C file of many functions: loops, switches, structures, arithmetic that the optimiser has to take apart.

    make_c.py FUNCTIONS
"""
import random
import sys

FUNCTION = """
typedef struct {{ unsigned key[{size}]; struct {{ unsigned short low; unsigned char high; }} part; double scale; }} record_{n};

static inline unsigned mix_{n}(record_{n} *r, unsigned x) {{
  r->part.low = x; r->part.high = x >> {a};
  return (r->part.low ^ x * {b}u) + r->part.high * r->key[x % {size}];
}}

unsigned work_{n}(record_{n} *r, unsigned x, unsigned count) {{
  unsigned sum = x;
  for (unsigned i = 0; i < count; i++) {{
    r->key[i % {size}] += sum >> (i % {a});
    switch ((sum ^ i) % {cases}) {{
{arms}
    default: sum ^= r->key[(i + 1) % {size}];
    }}
    r->scale = r->scale * .5 + sum;
  }}
  for (unsigned i = 0; i < {size}; i++)
    for (unsigned j = i; j < {size}; j++)
      if (r->key[i] > r->key[j]) {{ unsigned t = r->key[i]; r->key[i] = r->key[j]; r->key[j] = t; }}
  return r->scale > {b} ? mix_{n}(r, sum) : sum;
}}
"""
ARMS = (
    "sum += mix_{n}(r, i) * {c}u;",
    "sum = sum << {s} | sum >> (32 - {s}); break;",
    "if (sum & {c}u) {{ sum /= {s}u; }} else {{ sum -= i; }}",
    "for (unsigned k = 0; k < {s}; k++) sum ^= r->key[k % {size}] * k; break;",
    "sum = sum % {c}u + mix_{n}(r, sum); break;",
)


def arm(n, size, dice):
    return dice.choice(ARMS).format(n=n, size=size, c=dice.randint(3, 9999), s=dice.randint(2, 30))


def function(n, dice):
    size, cases = dice.randint(4, 24), dice.randint(4, 9)
    arms = "\n".join(f"    case {case}: " + arm(n, size, dice) for case in range(cases - 1))
    return FUNCTION.format(n=n, size=size, cases=cases, arms=arms, a=dice.randint(3, 16), b=dice.randint(100, 99999))


dice = random.Random(1)
print("".join(function(n, dice) for n in range(int(sys.argv[1]))))
